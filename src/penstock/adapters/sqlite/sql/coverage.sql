-- The states of an import's shards, in parts that can be drawn.

-- name: part_coverage
select * from (
    select substr(shard_key, 1, instr(shard_key || '|', '|') - 1) as part,
        count(*) as total,
        count(*) filter (where status = 'pending') as pending,
        count(*) filter (where status = 'leased') as leased,
        count(*) filter (where status = 'done') as done,
        count(*) filter (where status = 'failed') as failed,
        count(*) filter (where status = 'split') as split,
        count(*) filter (where status = 'cancelled') as cancelled
    from penstock_job
    where import_id = :import_id
    group by 1
) as parts
order by failed desc, pending + leased desc, part
limit :limit;

-- name: coverage_buckets
-- Jobs have their ids in the order of the plan; those of splits come last.
select (id - first_id) * :count / (last_id - first_id + 1) as bucket,
    count(*) as total,
    count(*) filter (where status = 'pending') as pending,
    count(*) filter (where status = 'leased') as leased,
    count(*) filter (where status = 'done') as done,
    count(*) filter (where status = 'failed') as failed,
    count(*) filter (where status = 'split') as split,
    count(*) filter (where status = 'cancelled') as cancelled
from penstock_job
cross join (
    select min(id) as first_id, max(id) as last_id from penstock_job
    where import_id = :import_id
) as planned
where import_id = :import_id
group by 1
order by 1;
