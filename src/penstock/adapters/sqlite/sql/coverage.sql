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
    where import_id = :import_id and kind = 'shard'
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
    where import_id = :import_id and kind = 'shard'
) as planned
where import_id = :import_id and kind = 'shard'
group by 1
order by 1;

-- name: plan_size
-- The first value of the first axis has as many shards as the other axes have values.
select count(*) as total,
    count(*) filter (where substr(shard_key, 1, instr(shard_key || '|', '|') - 1) = first.down) as across
from penstock_job
cross join (
    select substr(shard_key, 1, instr(shard_key || '|', '|') - 1) as down
    from penstock_job
    where import_id = :import_id and kind = 'shard' and parent is null
    order by id
    limit 1
) as first
where import_id = :import_id and kind = 'shard' and parent is null;

-- name: coverage_matrix
-- The plan has the values of the first axis in turn, each with all of the others.
select cells.*, first_job.shard_key as first_key, last_job.shard_key as last_key
from (
    select number / :across as y,
        number % :across * :columns / :across as x,
        min(id) as first_id,
        max(id) as last_id,
        count(*) filter (where status = 'pending') as pending,
        count(*) filter (where status = 'leased') as leased,
        count(*) filter (where status = 'done') as done,
        count(*) filter (where status = 'failed') as failed,
        count(*) filter (where status = 'split') as split,
        count(*) filter (where status = 'cancelled') as cancelled,
        count(*) as total
    from (
        select id, status, row_number() over (order by id) - 1 as number
        from penstock_job
        where import_id = :import_id and kind = 'shard' and parent is null
    ) as planned
    group by 1, 2
) as cells
join penstock_job as first_job on first_job.id = cells.first_id
join penstock_job as last_job on last_job.id = cells.last_id
order by cells.first_id;

-- name: split_shards
with recursive family (id, planned) as (
    select id, id from penstock_job
    where import_id = :import_id and status = 'split' and parent is null
    union all
    select child.id, family.planned
    from family
    join penstock_job as child on child.parent = family.id
)
select family.planned, penstock_job.status, count(*) as jobs
from family
join penstock_job on penstock_job.id = family.id
where penstock_job.parent is not null
group by family.planned, penstock_job.status;

-- name: find_shards
with recursive family (id) as (
    select id from penstock_job
    where import_id = :import_id and status = 'split'
        and id between :first and :last
    union all
    select child.id
    from family
    join penstock_job as child on child.parent = family.id
)
select * from penstock_job
where import_id = :import_id and kind = 'shard'
    and id > :after
    and (id between :first and :last or id in (select id from family))
    and status in (select value from json_each(:statuses))
order by id
limit :limit;
