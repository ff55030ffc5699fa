-- Whether a full import may have more rows that lost to another row of their key than
-- max_duplicates; decided when it begins, or by whoever goes on with it.
alter table penstock_import add column accepts_duplicates integer not null default 0;
