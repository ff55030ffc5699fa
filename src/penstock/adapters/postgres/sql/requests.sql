-- The idempotency keys of clients. A statement with a fence changes no row when another
-- process has taken over the request, or completed it.

-- name: add_request
insert into penstock_request (scope, key, digest, file, until)
values (%(scope)s, %(key)s, %(digest)s, %(file)s,
    {now} + %(at_work)s * interval '1 microsecond')
on conflict (scope, key) do nothing
returning fence;

-- name: hold_request
select *, until < {now} as is_over from penstock_request
where scope = %(scope)s and key = %(key)s
for update;

-- name: take_over_request
update penstock_request
set fence = fence + 1, digest = %(digest)s, file = %(file)s,
    until = {now} + %(at_work)s * interval '1 microsecond',
    import_id = null, resumed = null
where scope = %(scope)s and key = %(key)s
returning fence;

-- name: answer_request
update penstock_request
set import_id = %(import_id)s, resumed = %(resumed)s,
    until = {now} + %(remembered)s * interval '1 microsecond'
where scope = %(scope)s and key = %(key)s and fence = %(claimed)s and import_id is null
returning fence;

-- name: give_up_request
delete from penstock_request
where scope = %(scope)s and key = %(key)s and fence = %(claimed)s and import_id is null;

-- name: forget_requests
delete from penstock_request
where until < {now} and (scope, key) in (
    select scope, key from penstock_request
    where until < {now}
    order by until
    limit %(most)s
);
