-- The claims of jobs that have ended: who worked on which job, from when until when, and
-- how it ended. A claim that has not ended is in its job alone.
create table penstock_claim (
    id bigint generated always as identity primary key,
    import_id bigint not null,
    job_id bigint not null,
    fence bigint not null,
    owner text not null,
    claimed_at timestamptz not null,
    -- of a lost lease: when it expired
    ended_at timestamptz not null,
    outcome text not null check (outcome in (
        'done', 'failed', 'split', 'cancelled', 'released', 'waiting', 'error', 'lost'
    )),
    -- of the error, if there was one
    code text
);
create unique index penstock_claim_import
on penstock_claim (import_id, claimed_at, job_id, fence);

alter table penstock_job
    -- null: the claim began before there was this table, and is not added to it
    add column claimed_at timestamptz,
    -- when its worker last gave it back before its end
    add column released_at timestamptz;

create function penstock_add_claim() returns trigger language plpgsql as $$
begin
    insert into penstock_claim
        (import_id, job_id, fence, owner, claimed_at, ended_at, outcome, code)
    values (
        old.import_id, old.id, old.fence, old.lease_owner, old.claimed_at,
        coalesce(
            case
                when new.rescues > old.rescues then old.lease_until
                when new.status = 'pending' then new.released_at
                else new.finished_at
            end,
            old.lease_until
        ),
        case
            when new.rescues > old.rescues then 'lost'
            when new.status <> 'pending' then new.status
            when new.snoozes > old.snoozes then 'waiting'
            when new.errors <> old.errors then 'error'
            else 'released'
        end,
        case when new.errors <> old.errors then new.errors -> -1 ->> 'code' end
    );
    return null;
end
$$;

-- the condition is checked before the function is called, so a page that does not end
-- its job costs nothing more
create trigger penstock_job_claim_ended after update of status on penstock_job
for each row
when (
    old.status = 'leased' and old.claimed_at is not null
    and (new.status <> 'leased' or new.fence <> old.fence)
)
execute function penstock_add_claim();
