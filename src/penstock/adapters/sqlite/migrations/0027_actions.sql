-- What people have done: who, what, when.
create table penstock_action (
    id integer primary key autoincrement,
    at integer not null,
    actor text not null,
    -- such as cancelImport, the name of an operation of the API
    name text not null,
    -- such as imports/7
    subject text not null,
    -- how it came: api or command
    via text not null
) strict;
