-- What clients have asked for under keys of their own: asked again, it is not done
-- again. Written with the import that it began, and forgotten after a day.
create table penstock_request (
    -- who asks for what, and the key of this one time
    scope text not null,
    key text not null,
    digest bytea not null,
    -- rises when somebody takes over a request that was never answered
    fence bigint not null default 1,
    -- what came of it; null while somebody is at work on it
    import_id bigint references penstock_import (id),
    resumed boolean,
    -- the file that came with it
    file text,
    -- until then it is at work, or remembered
    until timestamptz not null,
    primary key (scope, key)
);

create index penstock_request_until on penstock_request (until);
