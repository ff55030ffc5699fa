-- Whether rows of files that an import no longer reads may be marked as deleted at its
-- end; decided when it begins, or by whoever goes on with it.
alter table penstock_import add column accepts_lost_files integer not null default 0;
