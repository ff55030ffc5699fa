-- A random tag beside each number of a change and of a generation: after a database was
-- put back to an older state, the numbers are used again, and the tags are not.
alter table penstock_dataset add column generation_tag integer not null default 0;
alter table penstock_dataset add column change_tag integer not null default 0;
alter table penstock_change add column tag integer not null default 0;

update penstock_dataset
set generation_tag = random() & 0xffffffffffff, change_tag = random() & 0xffffffffffff;
update penstock_change
set tag = coalesce(
    (select change_tag from penstock_dataset where name = penstock_change.dataset), 0
);
