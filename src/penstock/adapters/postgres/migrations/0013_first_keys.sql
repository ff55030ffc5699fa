-- A digest of the keys of the first page of a shard that is not empty: shards that begin
-- with the same records show that the provider ignores their filters.
alter table penstock_job add column first_keys bytea;
create index penstock_job_first_keys on penstock_job (import_id, first_keys)
where first_keys is not null;
