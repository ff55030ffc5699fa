-- With each change the tag of the one before it: by it a position is known whose own
-- entry was never there, or was removed. Null where it is the change's own tag.
alter table penstock_dataset add column previous_tag integer;
alter table penstock_change add column previous_tag integer;
