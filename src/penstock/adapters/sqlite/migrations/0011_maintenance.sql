-- What is done from time to time beside the work, each by one process at a time: tasks
-- with an interval, and tasks that end (those with a kind), which remember their
-- progress.
create table penstock_task (
    name text primary key,
    -- of a task that ends
    kind text,
    payload text,
    cursor text,
    counts text not null default '{}',
    -- null: it has ended
    due_at integer,
    -- a claim raises it, so that a process that lost its claim changes nothing
    fence integer not null default 0,
    owner text,
    -- when the claim expires
    until integer,
    last_run_at integer,
    -- the duration of the last run in microseconds
    took integer,
    -- of the last run that failed
    error text,
    failed_at integer
) strict, without rowid;
create index penstock_task_kind on penstock_task (kind) where kind is not null;
