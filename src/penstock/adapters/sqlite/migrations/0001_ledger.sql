-- The ledger: imports, jobs, pages, quarantine, changes and budgets.
-- Times are whole microseconds since 1970, by SQLite's own clock.

create table penstock_dataset (
    name text primary key,
    -- the declared type of each field, of which a column tells only a part
    fields text not null default '{}',
    generation integer not null default 0,
    change_seq integer not null default 0,
    -- the provider's time at the start of the last proven scan
    watermark integer
) strict;

create table penstock_import (
    id integer primary key autoincrement,
    dataset text not null,
    mode text not null check (mode in ('full', 'delta', 'backfill')),
    status text not null
        check (status in ('planning', 'running', 'done', 'failed', 'cancelled')),
    declaration text not null,
    -- decided when it begins: a declaration changed on the way must not change it
    tracked integer not null,
    since integer,
    until integer not null,
    priority integer not null,
    region text,
    -- rises at every claim: the import served longest ago has the smallest
    turn integer not null default 0,
    scan_started_at integer,
    pages integer not null default 0,
    requests integer not null default 0,
    seen integer not null default 0,
    inserted integer not null default 0,
    updated integer not null default 0,
    unchanged integer not null default 0,
    deleted integer not null default 0,
    quarantined integer not null default 0,
    dropped integer not null default 0,
    rescues integer not null default 0,
    proven integer not null default 0,
    note text,
    created_at integer not null,
    finished_at integer
) strict;

create unique index penstock_import_unfinished on penstock_import (dataset, mode)
where status in ('planning', 'running');
create index penstock_import_turn on penstock_import (turn);

create table penstock_job (
    id integer primary key autoincrement,
    import_id integer not null references penstock_import (id),
    parent integer references penstock_job (id),
    dataset text not null,
    shard_key text not null,
    region text,
    status text not null default 'pending'
        check (status in ('pending', 'leased', 'done', 'failed', 'split', 'cancelled')),
    run_at integer not null,
    -- rises by one at every claim, and never falls
    fence integer not null default 0,
    lease_owner text,
    lease_until integer,
    cursor text,
    page_seq integer not null default 0,
    attempts integer not null default 0,
    rescues integer not null default 0,
    snoozes integer not null default 0,
    requests integer not null default 0,
    seen integer not null default 0,
    inserted integer not null default 0,
    updated integer not null default 0,
    unchanged integer not null default 0,
    quarantined integer not null default 0,
    dropped integer not null default 0,
    proof text,
    errors text not null default '[]',
    created_at integer not null,
    finished_at integer,
    unique (import_id, shard_key)
) strict;

-- finished jobs are in none of these, so a claim never wades through them
create index penstock_job_pending on penstock_job (import_id, run_at, id)
where status = 'pending';
create index penstock_job_leased on penstock_job (import_id, lease_until)
where status = 'leased';
create index penstock_job_status on penstock_job (import_id, status);

create table penstock_page (
    job_id integer not null references penstock_job (id),
    page_seq integer not null,
    fence integer not null,
    seen integer not null,
    cursor_before text,
    cursor_after text,
    committed_at integer not null,
    primary key (job_id, page_seq)
) strict, without rowid;

create table penstock_quarantine (
    id integer primary key autoincrement,
    dataset text not null,
    import_id integer not null references penstock_import (id),
    job_id integer not null references penstock_job (id),
    page_seq integer not null,
    position integer not null,
    field text,
    reason text not null,
    detail text not null,
    raw blob not null,
    key text,
    at integer not null,
    resolved text check (resolved in ('accepted', 'superseded')),
    unique (job_id, page_seq, position)
) strict;

create index penstock_quarantine_open on penstock_quarantine (dataset, id)
where resolved is null;
create index penstock_quarantine_key on penstock_quarantine (dataset, key)
where resolved is null;
create index penstock_quarantine_import on penstock_quarantine (import_id);

create table penstock_change (
    dataset text not null,
    seq integer not null,
    kind text not null check (kind in ('created', 'updated', 'deleted')),
    key text not null,
    import_id integer,
    at integer not null,
    primary key (dataset, seq)
) strict, without rowid;

create table penstock_budget (
    name text primary key,
    usage text not null,
    taken integer not null default 0,
    closed_until integer not null default 0,
    closed_reason text,
    stopped text
) strict;
