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

-- name: forget_requests
delete from penstock_request
where until < :now and (scope, key) in (
    select scope, key from penstock_request
    where until < :now
    order by until
    limit :most
);
