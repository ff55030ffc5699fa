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
set closed_until = :until, closed_reason = :reason,
    paused_at = case
        when stopped is not null or closed_until > :at
        then coalesce(paused_at, :at) else :at end
where name = :name and closed_until < :until;

-- name: stop_budget
update penstock_budget
set stopped = :reason,
    paused_at = case when stopped is null then :at else paused_at end
where name = :name;

-- name: open_budget
update penstock_budget
set stopped = null, closed_until = 0, closed_reason = null, paused_at = null
where name = :name;
