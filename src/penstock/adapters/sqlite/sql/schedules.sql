-- Schedules and their fires. A statement with a revision changes no row when another
-- process has decided fires of the schedule meanwhile.

-- name: get_schedule
select * from penstock_schedule where name = :name;

-- name: hold_schedule
select * from penstock_schedule where name = :name;

-- name: declared_schedules
select * from penstock_schedule where origin = 'declared' order by name;

-- name: add_schedule
insert into penstock_schedule
    (name, dataset, origin, fields, status, note, after, considered_until, next_run_at,
    counted_since, declared_at, created_at)
values
    (:name, :dataset, :origin, :fields, :status, :note,
    :after, :now, :next_run_at, :now, :declared_at, :now)
on conflict (name) do nothing
returning *;

-- name: change_schedule
-- Fires before the change are not made up for.
update penstock_schedule
set dataset = :dataset, fields = :fields, status = :status,
    note = :note, after = :after, considered_until = :now,
    next_run_at = :next_run_at, counted_since = :now, declared_at = :declared_at,
    conflict = null, revision = revision + 1
where name = :name and revision = :revision
returning *;

-- name: confirm_schedule
update penstock_schedule set declared_at = :declared_at, conflict = null
where name = :name;

-- name: note_schedule_conflict
update penstock_schedule set conflict = :conflict
where name = :name and conflict is not :conflict;

-- name: set_schedule_status
update penstock_schedule
set status = :status, note = :note,
    next_run_at = case when :status = 'retired' then null else next_run_at end,
    waiting = case when :status = 'retired' then null else waiting end,
    declared_at = coalesce(:declared_at, declared_at),
    counted_since = case when :status = 'active' then :now else counted_since end,
    revision = revision + 1
where name = :name and revision = :revision
returning *;

-- name: delete_schedule
delete from penstock_schedule where name = :name;

-- name: delete_fires
delete from penstock_fire where schedule = :name;

-- name: list_schedules
select * from penstock_schedule
where (:status is null or status = :status)
    and (:dataset is null or dataset = :dataset)
    and (:after is null or name > :after)
order by name
limit :limit;

-- name: list_schedules_by_next_run
select * from penstock_schedule
where next_run_at is not null
    and (:status is null or status = :status)
    and (:dataset is null or dataset = :dataset)
    and (:at is null or (next_run_at, name) > (:at, :after))
order by next_run_at, name
limit :limit;

-- name: list_schedules_by_last_run
select * from penstock_schedule
where last_run_at is not null
    and (:status is null or status = :status)
    and (:dataset is null or dataset = :dataset)
    and (:at is null or (last_run_at, name) < (:at, :after))
order by last_run_at desc, name desc
limit :limit;

-- name: list_schedules_by_creation
select * from penstock_schedule
where (:status is null or status = :status)
    and (:dataset is null or dataset = :dataset)
    and (:at is null or (created_at, name) < (:at, :after))
order by created_at desc, name desc
limit :limit;

-- name: due_schedules
-- Those that fire after imports, or whose fire waits for one, are looked at each time.
-- The plus before status keeps SQLite from reading all schedules that are active.
select * from (
    select * from penstock_schedule
    where next_run_at <= :now and +status in ('active', 'paused', 'broken')
    order by next_run_at, name
    limit :limit
)
union
select * from penstock_schedule indexed by penstock_schedule_idle
where (waiting is not null or after is not null)
    and +status in ('active', 'paused', 'broken')
order by next_run_at, name;

-- name: next_schedule
select
    (
        select next_run_at from penstock_schedule
        where next_run_at is not null and +status in ('active', 'paused', 'broken')
        order by next_run_at
        limit 1
    ) - :now as wait,
    exists (
        select 1 from penstock_schedule
        where (waiting is not null or after is not null)
            and +status in ('active', 'paused', 'broken')
    ) as has_pending;

-- name: advance_schedule
update penstock_schedule
set considered_until = :considered_until, waiting = :waiting,
    next_run_at = :next_run_at, status = :status, note = :note,
    last_run_at = case when :has_run then :now else last_run_at end,
    revision = revision + 1
where name = :name and revision = :revision
returning *;

-- name: note_run
update penstock_schedule set last_run_at = :now where name = :name;

-- name: extend_fires
update penstock_fire
set last_fire_at = :last_fire_at, count = count + :count, decided_at = :now
where id = (
        select max(id) from penstock_fire
        where schedule = :schedule and request = ''
    )
    and outcome = :outcome and reason = :reason
    and detail is :detail
    and fire_at < :fire_at;

-- name: add_fire
-- Only a fire that waits changes.
insert into penstock_fire
    (schedule, request, fire_at, last_fire_at, count, outcome, reason, detail,
    import_id, decided_at)
values
    (:schedule, :request, :fire_at, :last_fire_at, :count, :outcome,
    :reason, :detail, :import_id, :now)
on conflict (schedule, request, fire_at) do update
set outcome = excluded.outcome, reason = excluded.reason, detail = excluded.detail,
    import_id = excluded.import_id, decided_at = excluded.decided_at
where penstock_fire.outcome = 'waiting'
returning id;

-- name: recent_fires
select penstock_fire.*, penstock_import.status as import_status
from penstock_fire
left join penstock_import on penstock_import.id = penstock_fire.import_id
where schedule = :schedule and (:before is null or penstock_fire.id < :before)
order by penstock_fire.id desc
limit :limit;

-- name: schedule_results
select penstock_import.status
from penstock_fire
join penstock_import on penstock_import.id = penstock_fire.import_id
where schedule = :schedule and outcome = 'started'
    and penstock_import.created_at >= :since
    and penstock_import.status in ('done', 'failed')
order by penstock_fire.id desc
limit :limit;

-- name: newest_proven_imports
select dataset, max(finished_at) as finished_at
from penstock_import
where proven and dataset in (select value from json_each(:datasets))
group by dataset;
