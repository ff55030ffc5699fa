-- Who works, or waits for work, so that an import which nobody works can say so. Each
-- worker process writes its row every few seconds, and takes it away when it ends.
create table penstock_worker (
    id text primary key,
    region text,
    -- the datasets that it works, each with the digest of its declaration
    declarations text not null,
    started_at integer not null,
    -- a process that has not written by then is gone
    until integer not null
) strict, without rowid;
