-- Some of the keys that several rows of a shard have, as JSON: an import with too many of
-- these rows fails, and names them.
alter table penstock_job add column repeated_keys text;
