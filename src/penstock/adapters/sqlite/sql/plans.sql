-- The jobs that plan imports. While an import is being planned, no other job of it can
-- be claimed; those who change it lock its row first, as everywhere.

-- name: add_plan_job
-- Others have it only if the process that begins the import does not plan it soon.
insert into penstock_job
    (import_id, dataset, shard_key, kind, region, cursor, run_at, created_at)
select id, dataset, 'plan', 'plan', region, :cursor,
    :now + :head_start, :now
from penstock_import
where id = :import_id;

-- name: due_plans
select running.id
from penstock_import as running
join penstock_job as plan on plan.import_id = running.id and plan.kind = 'plan'
where running.status = 'planning' and running.status in ('planning', 'running')
    and exists (
        select 1 from json_each(:declarations) as declared
        where declared.key = running.dataset and declared.value = running.declaration
    )
    and (
        (plan.status = 'pending' and plan.run_at <= :now)
        or (plan.status = 'leased' and plan.lease_until < :now
            and plan.rescues + 1 < :max_rescues)
    )
order by running.priority desc, plan.run_at, running.id;

-- name: claim_plan
update penstock_job
set status = 'leased',
    fence = fence + 1,
    lease_owner = :owner,
    claimed_at = :now,
    lease_until = :now + :lease,
    rescues = rescues + (status = 'leased'),
    errors = case when status = 'pending' then errors else json_insert(
        case when json_array_length(errors) >= :max_errors
            then json_remove(errors, '$[0]') else errors end,
        '$[#]',
        json_object(
            'at', :now, 'owner', lease_owner, 'fence', fence, 'code', 'lease_lost',
            'message', 'the lease expired', 'cursor', cursor
        )
    ) end
where import_id = :import_id and kind = 'plan' and (
    status = 'pending'
    or (status = 'leased' and lease_until < :now and rescues + 1 < :max_rescues)
) and exists (
    select 1 from penstock_import where id = :import_id and status = 'planning'
)
returning *;

-- name: advance_plan
update penstock_job
set cursor = :cursor,
    lease_until = :now + :lease,
    attempts = 0,
    rescues = 0
where id = :job and fence = :fence and status = 'leased'
returning page_seq;

-- name: drop_planned_jobs
delete from penstock_job where import_id = :import_id and kind = 'shard';

-- name: finish_plan
update penstock_job
set status = 'done', finished_at = :now, lease_owner = null, lease_until = null
where import_id = :import_id and kind = 'plan'
    and status in ('pending', 'leased');

-- name: failed_plans
select running.id, plan.errors ->> '$[#-1].message' as message
from penstock_import as running
join penstock_job as plan on plan.import_id = running.id and plan.kind = 'plan'
where running.status = 'planning' and running.status in ('planning', 'running') and plan.status = 'failed';

-- name: count_failed_plans
select count(*) as counted
from penstock_import as running
join penstock_job as plan on plan.import_id = running.id and plan.kind = 'plan'
where running.status = 'planning' and running.status in ('planning', 'running') and plan.status = 'failed';
