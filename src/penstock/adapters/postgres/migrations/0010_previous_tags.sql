-- With each page of changes the tag of the change before it: by it a position is known
-- whose own entry was never there, or was removed. Null where it is the page's own tag.
alter table penstock_dataset add column previous_tag bigint;
alter table penstock_change_page add column previous_tag bigint;
