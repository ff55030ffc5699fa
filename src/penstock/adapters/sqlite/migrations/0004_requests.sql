-- What clients have asked for under keys of their own: asked again, it is not done
-- again. Written with the import that it began, and forgotten after a day.
create table penstock_request (
    -- who asks for what, and the key of this one time
    scope text not null,
    key text not null,
    digest blob not null,
    -- rises when somebody takes over a request that was never answered
    fence integer not null default 1,
    -- what came of it; null while somebody is at work on it
    import_id integer references penstock_import (id),
    resumed integer,
    -- the file that came with it
    file text,
    -- until then it is at work, or remembered
    until integer not null,
    primary key (scope, key)
) strict, without rowid;

create index penstock_request_until on penstock_request (until);
