-- Who is just planning an import that a client began: a lease, as that of a job. Two who
-- plan at once would do the work twice, and one of them might not see the files.
create table penstock_planning (
    import_id bigint primary key references penstock_import (id),
    planner text not null,
    until timestamptz not null
);
