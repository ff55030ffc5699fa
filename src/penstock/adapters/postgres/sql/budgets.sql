-- One row a budget; what is decided about it is decided in the domain. Its times are
-- whole microseconds since 1970, as the domain counts them, by this database's clock.

-- name: add_budget
insert into penstock_budget (name, usage) values (%(name)s, '{}')
on conflict (name) do nothing;

-- name: hold_budget
-- The clock is read when the row is held, not when waiting for it began.
with held as materialized (
    select * from penstock_budget where name = %(name)s for update
)
select held.*, {clock_in_microseconds} as now from held;

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
set closed_until = %(until)s, closed_reason = %(reason)s
where name = %(name)s and closed_until < %(until)s;

-- name: stop_budget
update penstock_budget set stopped = %(reason)s where name = %(name)s;

-- name: open_budget
update penstock_budget
set stopped = null, closed_until = 0, closed_reason = null
where name = %(name)s;
