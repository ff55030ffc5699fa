-- One row a budget; the domain decides about it. Its times are whole microseconds since
-- 1970 by this database's clock.

-- name: add_budget
insert into penstock_budget (name, usage) values (%(name)s, '{}')
on conflict (name) do nothing;

-- name: hold_budget
-- The clock is read when the row is locked, not when waiting for it began.
with locked as materialized (
    select * from penstock_budget where name = %(name)s for update
)
select locked.*, {clock_in_microseconds} as now from locked;

-- name: get_budget
select *, {clock_in_microseconds} as now
from penstock_budget
where name = %(name)s;

-- name: set_usage
update penstock_budget
set usage = %(usage)s, taken = taken + %(taken)s
where name = %(name)s;

-- name: note_usage
update penstock_budget set usage = %(usage)s where name = %(name)s;

-- name: close_budget
update penstock_budget
set closed_until = %(until)s, closed_reason = %(reason)s,
    paused_at = case
        when stopped is not null or closed_until > %(at)s
        then coalesce(paused_at, %(at)s) else %(at)s end
where name = %(name)s and closed_until < %(until)s;

-- name: stop_budget
update penstock_budget
set stopped = %(reason)s,
    paused_at = case when stopped is null then %(at)s else paused_at end
where name = %(name)s;

-- name: open_budget
update penstock_budget
set stopped = null, closed_until = 0, closed_reason = null, paused_at = null
where name = %(name)s;
