-- The jobs that plan imports. While an import is being planned, no other job of it can
-- be claimed; those who change it lock its row first, as everywhere.

-- name: add_plan_job
-- Others have it only if the process that begins the import does not plan it soon.
insert into penstock_job
    (import_id, dataset, shard_key, kind, region, cursor, run_at, created_at)
select id, dataset, 'plan', 'plan', region, %(cursor)s,
    {now} + %(head_start)s * interval '1 microsecond', {now}
from penstock_import
where id = %(import_id)s;

-- name: due_plans
select running.id
from penstock_import as running
join penstock_job as plan on plan.import_id = running.id and plan.kind = 'plan'
where running.status = 'planning'
    and exists (
        select 1 from jsonb_each_text(%(declarations)s::jsonb) as declared
        where declared.key = running.dataset and declared.value = running.declaration
    )
    and (
        (plan.status = 'pending' and plan.run_at <= {now})
        or (plan.status = 'leased' and plan.lease_until < {now}
            and plan.rescues + 1 < %(max_rescues)s)
    )
order by running.priority desc, plan.run_at, running.id;

-- name: claim_plan
with due as materialized (
    select id from penstock_job
    where import_id = %(import_id)s and kind = 'plan' and (
        status = 'pending'
        or (status = 'leased' and lease_until < {now}
            and rescues + 1 < %(max_rescues)s)
    )
    and exists (
        select 1 from penstock_import
        where id = %(import_id)s and status = 'planning'
    )
    for update
)
update penstock_job
set {claimed_job}
where id in (select id from due)
returning *;

-- name: advance_plan
update penstock_job
set cursor = %(cursor)s,
    lease_until = {now} + %(lease)s * interval '1 microsecond',
    attempts = 0,
    rescues = 0
where id = %(job)s and fence = %(fence)s and status = 'leased'
returning page_seq;

-- name: drop_planned_jobs
delete from penstock_job where import_id = %(import_id)s and kind = 'shard';

-- name: finish_plan
update penstock_job
set status = 'done', finished_at = {now}, lease_owner = null, lease_until = null
where import_id = %(import_id)s and kind = 'plan'
    and status in ('pending', 'leased');

-- name: failed_plans
select running.id, plan.errors -> -1 ->> 'message' as message
from penstock_import as running
join penstock_job as plan on plan.import_id = running.id and plan.kind = 'plan'
where running.status = 'planning' and plan.status = 'failed';

-- name: count_failed_plans
select count(*) as counted
from penstock_import as running
join penstock_job as plan on plan.import_id = running.id and plan.kind = 'plan'
where running.status = 'planning' and plan.status = 'failed';
