-- Old entries of the ledger are removed. A database that has imports waits until
-- `penstock migrate` has shown what would go; an empty one has nothing to lose.
create table penstock_retention (
    id integer primary key check (id = 1),
    shown_at timestamptz not null
);
insert into penstock_retention (id, shown_at)
select 1, to_timestamp(0)
where not exists (select 1 from penstock_import);

-- 0: all pages are stored; 1: they are being removed; 2: they are removed.
alter table penstock_import add column pages_removed smallint not null default 0;
create index penstock_import_ended on penstock_import (finished_at, id)
where status in ('done', 'cancelled');
create index penstock_import_done on penstock_import (dataset, mode, id)
where status = 'done';
create index penstock_quarantine_resolved on penstock_quarantine (at, id)
where resolved is not null;

-- Who follows the changes of a dataset, and up to which one: later changes stay.
create table penstock_feeder (
    name text not null,
    dataset text not null,
    change_seq bigint not null,
    moved_at timestamptz not null,
    primary key (name, dataset)
);
create index penstock_feeder_dataset on penstock_feeder (dataset);

-- a view has the columns that its table had when it was made
drop view penstock_import_told;

create view penstock_import_told as
select penstock_import.*, counted.*
from penstock_import
cross join lateral (
    select
        coalesce(sum(pages), 0)::bigint as pages,
        coalesce(sum(requests), 0)::bigint as requests,
        coalesce(sum(seen), 0)::bigint as seen,
        coalesce(sum(inserted), 0)::bigint as inserted,
        coalesce(sum(updated), 0)::bigint as updated,
        coalesce(sum(unchanged), 0)::bigint as unchanged,
        coalesce(sum(quarantined), 0)::bigint as quarantined,
        coalesce(sum(dropped), 0)::bigint as dropped,
        coalesce(sum(duplicates), 0)::bigint as duplicates,
        coalesce(sum(rescues), 0)::bigint as rescues,
        min(scan_started_at) as scan_started_at
    from penstock_import_count
    where import_id = penstock_import.id
) as counted;
