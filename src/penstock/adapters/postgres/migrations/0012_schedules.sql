-- When imports begin. The fields of a schedule are as it was declared; times of fires
-- are those of the schedule, which a delay may follow.
create table penstock_schedule (
    name text primary key,
    dataset text not null,
    origin text not null check (origin in ('declared', 'created')),
    fields jsonb not null,
    status text not null
        check (status in ('active', 'paused', 'broken', 'ended', 'retired')),
    note text,
    -- the datasets of a schedule that fires after their imports
    after jsonb,
    -- all fires up to here have been decided
    considered_until timestamptz not null,
    -- a fire that waits for the end of another import
    waiting timestamptz,
    next_run_at timestamptz,
    last_run_at timestamptz,
    -- failures before do not count
    counted_since timestamptz not null,
    -- when the process that declared it had started: the latest wins
    declared_at timestamptz,
    -- what an older process declares otherwise
    conflict text,
    -- rises at every change, so that two processes do not decide the same fires
    revision bigint not null default 0,
    created_at timestamptz not null
) with (fillfactor = 50);
create index penstock_schedule_next on penstock_schedule (next_run_at, name);
create index penstock_schedule_status on penstock_schedule (status, name);
create index penstock_schedule_last on penstock_schedule (last_run_at, name);
create index penstock_schedule_created on penstock_schedule (created_at, name);
create index penstock_schedule_idle on penstock_schedule (name)
where waiting is not null or after is not null;

-- What happened to each fire. Fires in a row that were skipped for one reason share a
-- row, with the last of them and their number.
create table penstock_fire (
    id bigint generated always as identity primary key,
    schedule text not null,
    -- of a fire that a person asked for; empty: the schedule's own
    request text not null default '',
    fire_at timestamptz not null,
    last_fire_at timestamptz not null,
    count bigint not null default 1,
    outcome text not null
        check (outcome in ('started', 'waiting', 'skipped', 'missed')),
    reason text,
    detail text,
    import_id bigint references penstock_import (id),
    decided_at timestamptz not null,
    -- no fire begins a second import, whoever decides it
    unique (schedule, request, fire_at)
);
create index penstock_fire_recent on penstock_fire (schedule, id);
create index penstock_fire_import on penstock_fire (import_id)
where import_id is not null;
