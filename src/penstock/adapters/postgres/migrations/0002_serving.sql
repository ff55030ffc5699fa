-- What the processes of one installation share, so that each knows what another
-- has given out: the key that seals cursors.
create table penstock_secret (
    name text primary key,
    value bytea not null,
    created_at timestamptz not null
);
