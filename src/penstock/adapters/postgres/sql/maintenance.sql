-- The maintenance tasks. A statement with a fence affects no row if another process has
-- claimed the task since.

-- name: task_waits
select name, (extract(epoch from greatest(due_at, until) - {now}) * 1000000)::bigint
    as wait
from penstock_task
where due_at is not null and (
    name in (select jsonb_array_elements_text(%(names)s::jsonb))
    or kind in (select jsonb_array_elements_text(%(kinds)s::jsonb))
);

-- name: add_task
insert into penstock_task (name, due_at) values (%(name)s, {now})
on conflict (name) do nothing;

-- name: submit_task
insert into penstock_task (name, kind, payload, due_at)
values (%(name)s, %(kind)s, %(payload)s::jsonb, {now});

-- name: claim_task
-- Of concurrent claims the first wins: the others wait for its row, and find it claimed.
update penstock_task
set fence = fence + 1, owner = %(owner)s, last_run_at = {now}, took = null,
    until = {now} + %(lasting)s * interval '1 microsecond'
where name = %(name)s and due_at <= {now} and (until is null or until <= {now})
returning fence, kind, payload, cursor, counts;

-- name: renew_task
update penstock_task set until = {now} + %(lasting)s * interval '1 microsecond'
where name = %(name)s and fence = %(claimed)s and owner is not null;

-- name: save_task
update penstock_task set cursor = %(cursor)s, counts = %(counts)s::jsonb
where name = %(name)s and fence = %(claimed)s and owner is not null;

-- name: finish_task
update penstock_task
set owner = null, until = null,
    took = (extract(epoch from {now} - last_run_at) * 1000000)::bigint,
    due_at = {now} + %(due_in)s::bigint * interval '1 microsecond',
    error = coalesce(%(error)s::text, error),
    failed_at = case when %(error)s::text is null then failed_at else {now} end
where name = %(name)s and fence = %(claimed)s and owner is not null;

-- name: all_tasks
-- A claim that has expired has no owner any more.
select name, kind, due_at, last_run_at, took, error, failed_at, payload, cursor, counts,
    case when until > {now} then owner end as owner
from penstock_task
order by name;

-- name: forget_tasks
delete from penstock_task
where coalesce(due_at, last_run_at) < {now} - %(unused)s * interval '1 microsecond'
    and (kind is null or due_at is null)
    and (until is null or until < {now});
