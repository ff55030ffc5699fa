-- One row per budget; the domain decides how it changes.

-- name: add_budget
insert into penstock_budget (name, usage) values (:name, '{}')
on conflict (name) do nothing;

-- name: hold_budget
select *, :now as now from penstock_budget where name = :name;

-- name: get_budget
select *, :now as now from penstock_budget where name = :name;

-- name: set_usage
update penstock_budget set usage = :usage, taken = taken + :taken where name = :name;

-- name: note_usage
update penstock_budget set usage = :usage where name = :name;

-- name: close_budget
update penstock_budget
set closed_until = :until, closed_reason = :reason
where name = :name and closed_until < :until;

-- name: stop_budget
update penstock_budget set stopped = :reason where name = :name;

-- name: open_budget
update penstock_budget
set stopped = null, closed_until = 0, closed_reason = null
where name = :name;
