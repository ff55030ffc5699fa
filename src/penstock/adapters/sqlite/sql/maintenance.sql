-- The maintenance tasks. A statement with a fence affects no row if another process has
-- claimed the task since.

-- name: task_waits
select name, max(due_at, coalesce(until, due_at)) - :now as wait
from penstock_task
where due_at is not null and (
    name in (select value from json_each(:names))
    or kind in (select value from json_each(:kinds))
);

-- name: add_task
insert into penstock_task (name, due_at) values (:name, :now)
on conflict (name) do nothing;

-- name: submit_task
insert into penstock_task (name, kind, payload, due_at)
values (:name, :kind, :payload, :now);

-- name: claim_task
update penstock_task
set fence = fence + 1, owner = :owner, last_run_at = :now, took = null,
    until = :now + :lasting
where name = :name and due_at <= :now and (until is null or until <= :now)
returning fence, kind, payload, cursor, counts;

-- name: renew_task
update penstock_task set until = :now + :lasting
where name = :name and fence = :claimed and owner is not null;

-- name: save_task
update penstock_task set cursor = :cursor, counts = :counts
where name = :name and fence = :claimed and owner is not null;

-- name: finish_task
update penstock_task
set owner = null, until = null, took = :now - last_run_at, due_at = :now + :due_in,
    error = coalesce(:error, error),
    failed_at = case when :error is null then failed_at else :now end
where name = :name and fence = :claimed and owner is not null;

-- name: all_tasks
-- A claim that has expired has no owner any more.
select name, kind, due_at, last_run_at, took, error, failed_at, payload, cursor, counts,
    case when until > :now then owner end as owner
from penstock_task
order by name;

-- name: forget_tasks
delete from penstock_task
where coalesce(due_at, last_run_at) < :now - :unused
    and (kind is null or due_at is null)
    and (until is null or until < :now);
