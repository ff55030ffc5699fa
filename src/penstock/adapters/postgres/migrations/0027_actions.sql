-- What people have done: who, what, when.
create table penstock_action (
    id bigint generated always as identity primary key,
    at timestamptz not null,
    actor text not null,
    -- such as cancelImport, the name of an operation of the API
    name text not null,
    -- such as imports/7
    subject text not null,
    -- how it came: api or command
    via text not null
);
