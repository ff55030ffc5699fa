-- When imports begin. The fields of a schedule are as it was declared; times of fires
-- are those of the schedule, which a delay may follow.
create table penstock_schedule (
    name text primary key,
    dataset text not null,
    origin text not null check (origin in ('declared', 'created')),
    fields text not null,
    status text not null
        check (status in ('active', 'paused', 'broken', 'ended', 'retired')),
    note text,
    -- the datasets of a schedule that fires after their imports
    after text,
    -- all fires up to here have been decided
    considered_until integer not null,
    -- a fire that waits for the end of another import
    waiting integer,
    next_run_at integer,
    last_run_at integer,
    -- failures before do not count
    counted_since integer not null,
    -- when the process that declared it had started: the latest wins
    declared_at integer,
    -- what an older process declares otherwise
    conflict text,
    -- rises at every change, so that two processes do not decide the same fires
    revision integer not null default 0,
    created_at integer not null
) strict, without rowid;
create index penstock_schedule_next on penstock_schedule (next_run_at, name);
create index penstock_schedule_status on penstock_schedule (status, name);
create index penstock_schedule_last on penstock_schedule (last_run_at, name);
create index penstock_schedule_created on penstock_schedule (created_at, name);
create index penstock_schedule_idle on penstock_schedule (name)
where waiting is not null or after is not null;

-- What happened to each fire. Fires in a row that were skipped for one reason share a
-- row, with the last of them and their number.
create table penstock_fire (
    id integer primary key,
    schedule text not null,
    -- of a fire that a person asked for; empty: the schedule's own
    request text not null default '',
    fire_at integer not null,
    last_fire_at integer not null,
    count integer not null default 1,
    outcome text not null
        check (outcome in ('started', 'waiting', 'skipped', 'missed')),
    reason text,
    detail text,
    import_id integer references penstock_import (id),
    decided_at integer not null,
    -- no fire begins a second import, whoever decides it
    unique (schedule, request, fire_at)
) strict;
create index penstock_fire_recent on penstock_fire (schedule, id);
create index penstock_fire_import on penstock_fire (import_id)
where import_id is not null;
