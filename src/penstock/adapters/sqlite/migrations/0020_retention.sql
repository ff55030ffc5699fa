-- Old entries of the ledger are removed. A database that has imports waits until
-- `penstock migrate` has shown what would go; an empty one has nothing to lose.
create table penstock_retention (
    id integer primary key check (id = 1),
    shown_at integer not null
) strict;
insert into penstock_retention (id, shown_at)
select 1, 0
where not exists (select 1 from penstock_import);

-- 0: all pages are stored; 1: they are being removed; 2: they are removed.
alter table penstock_import add column pages_removed integer not null default 0;
create index penstock_import_ended on penstock_import (finished_at, id)
where status in ('done', 'cancelled');
create index penstock_import_done on penstock_import (dataset, mode, id)
where status = 'done';
-- without it, each job that is deleted reads all others to find its parts
create index penstock_job_parent on penstock_job (parent) where parent is not null;
create index penstock_quarantine_resolved on penstock_quarantine (at, id)
where resolved is not null;

-- Who follows the changes of a dataset, and up to which one: later changes stay.
create table penstock_feeder (
    name text not null,
    dataset text not null,
    change_seq integer not null,
    moved_at integer not null,
    primary key (name, dataset)
) strict, without rowid;
create index penstock_feeder_dataset on penstock_feeder (dataset);
