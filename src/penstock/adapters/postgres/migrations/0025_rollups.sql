-- What processes have counted since their last flush; only a process itself adds its
-- rows. They are folded into the rollups, and deleted, when their minute is over.
create table penstock_sample (
    process text not null,
    -- of the flush; a flush that is repeated has the same number
    flush bigint not null,
    minute timestamptz not null,
    kind text not null check (kind in ('dataset', 'budget')),
    name text not null,
    series text not null,
    value bigint not null,
    primary key (process, flush, kind, name, series)
);
create index penstock_sample_minute on penstock_sample (minute);

-- Sums per minute, and of old minutes per hour.
create table penstock_rollup (
    minute timestamptz not null,
    kind text not null check (kind in ('dataset', 'budget')),
    name text not null,
    series text not null,
    value bigint not null,
    primary key (kind, name, minute, series)
);
create index penstock_rollup_minute on penstock_rollup (minute);
