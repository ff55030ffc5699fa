-- Uploads that correct the bad rows of an earlier import, and how many of them were
-- open when the upload began.
create table penstock_correction (
    import_id bigint primary key references penstock_import (id),
    corrects bigint not null,
    open_rows bigint not null
);

-- A bad row may be discarded.
alter table penstock_quarantine drop constraint penstock_quarantine_resolved_check;
alter table penstock_quarantine add constraint penstock_quarantine_resolved_check
check (resolved in ('accepted', 'superseded', 'discarded')) not valid;
