-- Idempotent requests of clients. A statement with a fence affects no row if another
-- process has taken over or completed the request.

-- name: add_request
insert into penstock_request (scope, key, digest, file, until)
values (:scope, :key, :digest, :file, :now + :at_work)
on conflict (scope, key) do nothing
returning fence;

-- name: hold_request
select *, until < :now as is_over from penstock_request
where scope = :scope and key = :key;

-- name: take_over_request
update penstock_request
set fence = fence + 1, digest = :digest, file = :file, until = :now + :at_work,
    import_id = null, resumed = null
where scope = :scope and key = :key
returning fence;

-- name: answer_request
update penstock_request
set import_id = :import_id, resumed = :resumed, until = :now + :remembered
where scope = :scope and key = :key and fence = :claimed and import_id is null
returning fence;

-- name: give_up_request
delete from penstock_request
where scope = :scope and key = :key and fence = :claimed and import_id is null;

-- name: unplanned_imports
select id from penstock_import
where status = 'planning'
    -- started by a request, which may have been deleted since
    and (
        exists (select 1 from penstock_request where import_id = penstock_import.id)
        or exists (select 1 from penstock_planning where import_id = penstock_import.id)
    )
    and not exists (
        select 1 from penstock_planning
        where import_id = penstock_import.id and until > :now
    )
order by id;

-- name: hold_planning
-- Affects no row while another planner has the lock.
insert into penstock_planning as current (import_id, planner, until)
values (:import_id, :planner, :now + :longest)
on conflict (import_id) do update
set planner = excluded.planner, until = excluded.until
where current.planner = excluded.planner or current.until <= :now
returning import_id;

-- name: forget_requests
delete from penstock_request
where until < :now and (scope, key) in (
    select scope, key from penstock_request
    where until < :now
    order by until
    limit :most
);
