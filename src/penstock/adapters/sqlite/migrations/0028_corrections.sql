-- Uploads that correct the bad rows of an earlier import, and how many of them were
-- open when the upload began.
create table penstock_correction (
    import_id integer primary key references penstock_import (id),
    corrects integer not null,
    open_rows integer not null
) strict;

-- A bad row may be discarded. SQLite cannot change a check, so the table is copied.
create table penstock_quarantine_copy (
    id integer primary key autoincrement,
    dataset text not null,
    import_id integer not null references penstock_import (id),
    job_id integer not null references penstock_job (id),
    page_seq integer not null,
    position integer not null,
    field text,
    reason text not null,
    detail text not null,
    raw blob not null,
    key text,
    at integer not null,
    resolved text check (resolved in ('accepted', 'superseded', 'discarded')),
    line integer,
    byte_offset integer,
    unique (job_id, page_seq, position)
) strict;
insert into penstock_quarantine_copy
    (id, dataset, import_id, job_id, page_seq, position, field, reason, detail, raw,
    key, at, resolved, line, byte_offset)
select id, dataset, import_id, job_id, page_seq, position, field, reason, detail, raw,
    key, at, resolved, line, byte_offset
from penstock_quarantine;
-- so that no id is used again
delete from sqlite_sequence where name = 'penstock_quarantine_copy';
insert into sqlite_sequence (name, seq)
select 'penstock_quarantine_copy', seq from sqlite_sequence
where name = 'penstock_quarantine';
drop table penstock_quarantine;
alter table penstock_quarantine_copy rename to penstock_quarantine;
create index penstock_quarantine_open on penstock_quarantine (dataset, id)
where resolved is null;
create index penstock_quarantine_key on penstock_quarantine (dataset, key)
where resolved is null;
create index penstock_quarantine_import on penstock_quarantine (import_id);
create index penstock_quarantine_resolved on penstock_quarantine (at, id)
where resolved is not null;
