-- What is done from time to time beside the work, each by one process at a time: tasks
-- with an interval, and tasks that end (those with a kind), which remember their
-- progress.
create table penstock_task (
    name text primary key,
    -- of a task that ends
    kind text,
    payload jsonb,
    cursor text,
    counts jsonb not null default '{}',
    -- null: it has ended
    due_at timestamptz,
    -- a claim raises it, so that a process that lost its claim changes nothing
    fence bigint not null default 0,
    owner text,
    -- when the claim expires
    until timestamptz,
    last_run_at timestamptz,
    -- the duration of the last run in microseconds
    took bigint,
    -- of the last run that failed
    error text,
    failed_at timestamptz
-- updated every second or so: room for new versions in the same page, no index on times
) with (fillfactor = 50);
create index penstock_task_kind on penstock_task (kind) where kind is not null;
