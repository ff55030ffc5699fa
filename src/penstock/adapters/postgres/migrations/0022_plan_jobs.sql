-- Planning an import is a job of its own, beside those of its shards. It is stored with
-- the import.
alter table penstock_job
    add column kind text not null default 'shard' check (kind in ('shard', 'plan'));
create unique index penstock_job_plan on penstock_job (import_id) where kind = 'plan';

insert into penstock_job
    (import_id, dataset, shard_key, kind, region, run_at, created_at)
select id, dataset, 'plan', 'plan', region, now(), now() from penstock_import
where status = 'planning';
