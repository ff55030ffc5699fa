-- Schedules and their fires. A statement with a revision changes no row when another
-- process has decided fires of the schedule meanwhile.

-- name: get_schedule
select * from penstock_schedule where name = %(name)s;

-- name: hold_schedule
select * from penstock_schedule where name = %(name)s for update;

-- name: declared_schedules
select * from penstock_schedule where origin = 'declared' order by name for update;

-- name: add_schedule
insert into penstock_schedule
    (name, dataset, origin, fields, status, note, after, considered_until, next_run_at,
    counted_since, declared_at, created_at)
values
    (%(name)s, %(dataset)s, %(origin)s, %(fields)s::jsonb, %(status)s, %(note)s,
    %(after)s::jsonb, {now}, %(next_run_at)s, {now}, %(declared_at)s, {now})
on conflict (name) do nothing
returning *;

-- name: change_schedule
-- Fires before the change are not made up for.
update penstock_schedule
set dataset = %(dataset)s, fields = %(fields)s::jsonb, status = %(status)s,
    note = %(note)s, after = %(after)s::jsonb, considered_until = {now},
    next_run_at = %(next_run_at)s, counted_since = {now}, declared_at = %(declared_at)s,
    conflict = null, revision = revision + 1
where name = %(name)s and revision = %(revision)s
returning *;

-- name: confirm_schedule
update penstock_schedule set declared_at = %(declared_at)s, conflict = null
where name = %(name)s;

-- name: note_schedule_conflict
update penstock_schedule set conflict = %(conflict)s
where name = %(name)s and conflict is distinct from %(conflict)s;

-- name: set_schedule_status
update penstock_schedule
set status = %(status)s, note = %(note)s,
    next_run_at = case when %(status)s = 'retired' then null else next_run_at end,
    waiting = case when %(status)s = 'retired' then null else waiting end,
    declared_at = coalesce(%(declared_at)s, declared_at),
    counted_since = case when %(status)s = 'active' then {now} else counted_since end,
    revision = revision + 1
where name = %(name)s and revision = %(revision)s
returning *;

-- name: delete_schedule
delete from penstock_schedule where name = %(name)s;

-- name: delete_fires
delete from penstock_fire where schedule = %(name)s;

-- name: list_schedules
select * from penstock_schedule
where (%(status)s::text is null or status = %(status)s)
    and (%(dataset)s::text is null or dataset = %(dataset)s)
    and (%(after)s::text is null or name > %(after)s)
order by name
limit %(limit)s;

-- name: list_schedules_by_next_run
select * from penstock_schedule
where next_run_at is not null
    and (%(status)s::text is null or status = %(status)s)
    and (%(dataset)s::text is null or dataset = %(dataset)s)
    and (%(at)s::timestamptz is null or (next_run_at, name) > (%(at)s, %(after)s))
order by next_run_at, name
limit %(limit)s;

-- name: list_schedules_by_last_run
select * from penstock_schedule
where last_run_at is not null
    and (%(status)s::text is null or status = %(status)s)
    and (%(dataset)s::text is null or dataset = %(dataset)s)
    and (%(at)s::timestamptz is null or (last_run_at, name) < (%(at)s, %(after)s))
order by last_run_at desc, name desc
limit %(limit)s;

-- name: list_schedules_by_creation
select * from penstock_schedule
where (%(status)s::text is null or status = %(status)s)
    and (%(dataset)s::text is null or dataset = %(dataset)s)
    and (%(at)s::timestamptz is null or (created_at, name) < (%(at)s, %(after)s))
order by created_at desc, name desc
limit %(limit)s;

-- name: due_schedules
-- Those that fire after imports, or whose fire waits for one, are looked at each time.
(
    select * from penstock_schedule
    where next_run_at <= {now} and status in ('active', 'paused', 'broken')
    order by next_run_at, name
    limit %(limit)s
)
union
(
    select * from penstock_schedule
    where (waiting is not null or after is not null)
        and status in ('active', 'paused', 'broken')
)
order by next_run_at, name;

-- name: next_schedule
select
    (extract(epoch from (
        select min(next_run_at) from penstock_schedule
        where status in ('active', 'paused', 'broken')
    ) - {now}) * 1000000)::bigint as wait,
    exists (
        select 1 from penstock_schedule
        where (waiting is not null or after is not null)
            and status in ('active', 'paused', 'broken')
    ) as has_pending;

-- name: advance_schedule
update penstock_schedule
set considered_until = %(considered_until)s, waiting = %(waiting)s,
    next_run_at = %(next_run_at)s, status = %(status)s, note = %(note)s,
    last_run_at = case when %(has_run)s then {now} else last_run_at end,
    revision = revision + 1
where name = %(name)s and revision = %(revision)s
returning *;

-- name: note_run
update penstock_schedule set last_run_at = {now} where name = %(name)s;

-- name: extend_fires
update penstock_fire
set last_fire_at = %(last_fire_at)s, count = count + %(count)s, decided_at = {now}
where id = (
        select max(id) from penstock_fire
        where schedule = %(schedule)s and request = ''
    )
    and outcome = %(outcome)s and reason = %(reason)s
    and detail is not distinct from %(detail)s
    and fire_at < %(fire_at)s;

-- name: add_fire
-- Only a fire that waits changes.
insert into penstock_fire
    (schedule, request, fire_at, last_fire_at, count, outcome, reason, detail,
    import_id, decided_at)
values
    (%(schedule)s, %(request)s, %(fire_at)s, %(last_fire_at)s, %(count)s, %(outcome)s,
    %(reason)s, %(detail)s, %(import_id)s, {now})
on conflict (schedule, request, fire_at) do update
set outcome = excluded.outcome, reason = excluded.reason, detail = excluded.detail,
    import_id = excluded.import_id, decided_at = excluded.decided_at
where penstock_fire.outcome = 'waiting'
returning id;

-- name: recent_fires
select penstock_fire.*, penstock_import.status as import_status
from penstock_fire
left join penstock_import on penstock_import.id = penstock_fire.import_id
where schedule = %(schedule)s and (%(before)s::bigint is null or penstock_fire.id < %(before)s)
order by penstock_fire.id desc
limit %(limit)s;

-- name: schedule_results
select penstock_import.status
from penstock_fire
join penstock_import on penstock_import.id = penstock_fire.import_id
where schedule = %(schedule)s and outcome = 'started'
    and penstock_import.created_at >= %(since)s
    and penstock_import.status in ('done', 'failed')
order by penstock_fire.id desc
limit %(limit)s;

-- name: newest_proven_imports
select dataset, max(finished_at) as finished_at
from penstock_import
where proven and dataset in (select jsonb_array_elements_text(%(datasets)s::jsonb))
group by dataset;
