-- The ledger: imports, jobs, pages, quarantine, changes and budgets.
-- Times are by this database's own clock; no other clock is written here.

create table penstock_dataset (
    name text primary key,
    -- the declared type of each field, of which a column tells only a part
    fields jsonb not null default '{}',
    generation bigint not null default 0,
    change_seq bigint not null default 0,
    -- the provider's time at the start of the last proven scan
    watermark timestamptz,
    created_at timestamptz not null
) with (fillfactor = 50);

create sequence penstock_turn;

create table penstock_import (
    id bigint generated always as identity primary key,
    dataset text not null,
    mode text not null check (mode in ('full', 'delta', 'backfill')),
    status text not null
        check (status in ('planning', 'running', 'done', 'failed', 'cancelled')),
    declaration text not null,
    -- decided when it begins: a declaration changed on the way must not change it
    tracked boolean not null,
    since timestamptz,
    until timestamptz not null,
    priority bigint not null,
    region text,
    -- rises at every claim: the import served longest ago has the smallest
    turn bigint not null default 0,
    deleted bigint not null default 0,
    proven boolean not null default false,
    note text,
    -- when it ended: the last change of the dataset, its live rows, and the terms
    change_seq bigint,
    live bigint,
    terms text,
    created_at timestamptz not null,
    finished_at timestamptz
) with (fillfactor = 50);

create unique index penstock_import_unfinished on penstock_import (dataset, mode)
where status in ('planning', 'running');

-- The totals of an import, spread over rows so that pages which are committed at the
-- same time do not wait for each other; a reader adds them up.
create table penstock_import_count (
    import_id bigint not null references penstock_import (id),
    slot smallint not null,
    scan_started_at timestamptz,
    pages bigint not null default 0,
    requests bigint not null default 0,
    seen bigint not null default 0,
    inserted bigint not null default 0,
    updated bigint not null default 0,
    unchanged bigint not null default 0,
    quarantined bigint not null default 0,
    dropped bigint not null default 0,
    duplicates bigint not null default 0,
    rescues bigint not null default 0,
    primary key (import_id, slot)
) with (fillfactor = 50);

create view penstock_import_told as
select penstock_import.*, counted.*
from penstock_import
cross join lateral (
    select
        coalesce(sum(pages), 0)::bigint as pages,
        coalesce(sum(requests), 0)::bigint as requests,
        coalesce(sum(seen), 0)::bigint as seen,
        coalesce(sum(inserted), 0)::bigint as inserted,
        coalesce(sum(updated), 0)::bigint as updated,
        coalesce(sum(unchanged), 0)::bigint as unchanged,
        coalesce(sum(quarantined), 0)::bigint as quarantined,
        coalesce(sum(dropped), 0)::bigint as dropped,
        coalesce(sum(duplicates), 0)::bigint as duplicates,
        coalesce(sum(rescues), 0)::bigint as rescues,
        min(scan_started_at) as scan_started_at
    from penstock_import_count
    where import_id = penstock_import.id
) as counted;

create table penstock_job (
    id bigint generated always as identity primary key,
    import_id bigint not null references penstock_import (id),
    parent bigint,
    dataset text not null,
    shard_key text not null,
    region text,
    status text not null default 'pending'
        check (status in ('pending', 'leased', 'done', 'failed', 'split', 'cancelled')),
    run_at timestamptz not null,
    -- rises by one at every claim, and never falls
    fence bigint not null default 0,
    lease_owner text,
    lease_until timestamptz,
    cursor text,
    page_seq integer not null default 0,
    attempts integer not null default 0,
    rescues integer not null default 0,
    snoozes integer not null default 0,
    requests bigint not null default 0,
    seen bigint not null default 0,
    inserted bigint not null default 0,
    updated bigint not null default 0,
    unchanged bigint not null default 0,
    quarantined bigint not null default 0,
    dropped bigint not null default 0,
    duplicates bigint not null default 0,
    proof text,
    errors jsonb not null default '[]',
    created_at timestamptz not null,
    finished_at timestamptz,
    unique (import_id, shard_key)
) with (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02);

-- finished jobs are in none of these, so a claim never wades through them
create index penstock_job_pending on penstock_job (import_id, run_at, id)
where status = 'pending';
create index penstock_job_leased on penstock_job (import_id, lease_until)
where status = 'leased';
create index penstock_job_failed on penstock_job (import_id, id)
where status = 'failed';

create table penstock_page (
    job_id bigint not null references penstock_job (id),
    page_seq integer not null,
    fence bigint not null,
    seen bigint not null,
    cursor_before text,
    cursor_after text,
    -- by which the page is recognised when it comes again, and what it brought
    imprint bytea,
    memo text,
    committed_at timestamptz not null,
    primary key (job_id, page_seq)
);

create index penstock_page_imprint on penstock_page (imprint)
where imprint is not null;

create table penstock_quarantine (
    id bigint generated always as identity primary key,
    dataset text not null,
    import_id bigint not null references penstock_import (id),
    job_id bigint not null references penstock_job (id),
    page_seq integer not null,
    position bigint not null,
    field text,
    reason text not null,
    detail text not null,
    raw bytea not null,
    key text,
    -- where it stands in its file
    line bigint,
    byte_offset bigint,
    at timestamptz not null,
    resolved text check (resolved in ('accepted', 'superseded')),
    unique (job_id, page_seq, position)
);

create index penstock_quarantine_open on penstock_quarantine (dataset, id)
where resolved is null;
create index penstock_quarantine_key on penstock_quarantine (dataset, md5(key))
where resolved is null;
create index penstock_quarantine_import on penstock_quarantine (import_id);

-- One row for all changes of a page, numbered without a gap in the order of commits:
-- first the keys that were created, then those updated, then those deleted.
create table penstock_change_page (
    dataset text not null,
    first_seq bigint not null,
    last_seq bigint not null,
    created integer not null,
    updated integer not null,
    keys json not null,
    import_id bigint,
    at timestamptz not null,
    primary key (dataset, last_seq)
);

create view penstock_change as
select dataset, first_seq + place - 1 as seq,
    case when place <= created then 'created'
        when place <= created + updated then 'updated'
        else 'deleted' end as kind,
    told.key::text as key, import_id, at
from penstock_change_page
cross join lateral json_array_elements(keys) with ordinality as told (key, place);

create table penstock_budget (
    name text primary key,
    usage text not null,
    taken bigint not null default 0,
    closed_until bigint not null default 0,
    closed_reason text,
    stopped text
) with (fillfactor = 50);
