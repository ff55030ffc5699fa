-- The jobs of the ledger. A statement with a fence affects no row if the lease is lost;
-- the caller then rolls back and raises LeaseLost.

-- name: add_jobs
insert into penstock_job
    (import_id, parent, dataset, shard_key, region, run_at, created_at)
select penstock_import.id, :parent, dataset, value, region, :now, :now
from penstock_import, json_each(:shard_keys)
where penstock_import.id = :import_id and status in ('planning', 'running')
order by json_each.id
on conflict (import_id, shard_key) do nothing;

-- name: bury_lost_jobs
-- Several leases in a row have expired: the job probably crashes its worker, and would
-- do so again.
update penstock_job
set status = 'failed',
    rescues = rescues + 1,
    finished_at = :now,
    lease_owner = null,
    lease_until = null,
    errors = json_insert(
        case when json_array_length(errors) >= :max_errors
            then json_remove(errors, '$[0]') else errors end,
        '$[#]',
        json_object(
            'at', :now, 'owner', lease_owner, 'fence', fence, 'code', 'lease_lost',
            'message', 'the lease expired ' || (rescues + 1)
                || ' times in a row',
            'cursor', cursor
        )
    )
where status = 'leased' and lease_until < :now and rescues + 1 >= :max_rescues
    and import_id in (
        select id from penstock_import where status in ('planning', 'running')
    )
returning id, import_id, dataset, shard_key, rescues;

-- name: count_lost_jobs
select count(*) as counted
from penstock_job
where status = 'leased' and lease_until < :now and rescues + 1 >= :max_rescues
    and import_id in (
        select id from penstock_import where status in ('planning', 'running')
    );

-- name: find_due_import
-- The second condition on the status is that of an index, which SQLite would not use
-- for the first alone; so it is wherever running imports are searched.
-- Few imports run at a time, and an index finds the first due job of each; imports of
-- higher priority come first, those of equal priority take turns.
select id, mode, since, tracked, (
    select cursor from penstock_job where import_id = running.id and kind = 'plan'
) as plan_cursor, exists (
    select 1 from penstock_job
    where status = 'leased' and lease_until < :now and rescues + 1 >= :max_rescues
        and import_id in (
            select id from penstock_import
            where status = 'running' and status in ('planning', 'running')
        )
) as is_lost
from penstock_import as running
where running.status = 'running' and running.status in ('planning', 'running')
    and exists (
        select 1 from json_each(:declarations)
        where key = running.dataset and value = running.declaration
    )
    and (:region is null or running.region is null or running.region = :region)
    and running.id not in (select value from json_each(:tried))
    and (
        exists (
            select 1 from penstock_job
            where import_id = running.id and status = 'leased' and lease_until < :now
        )
        or exists (
            select 1 from penstock_job
            where import_id = running.id and status = 'pending' and run_at <= :now
        )
    )
order by priority desc, turn, id
limit 1;

-- name: next_due
select min(coalesce((
    select min(run_at) from penstock_job
    where import_id = running.id and status = 'pending'
), 9e18), coalesce((
    select min(lease_until) from penstock_job
    where import_id = running.id and status = 'leased'
), 9e18)) - :now as due_in
from penstock_import as running
where running.status = 'running' and running.status in ('planning', 'running')
    and exists (
        select 1 from json_each(:declarations)
        where key = running.dataset and value = running.declaration
    )
    and (:region is null or running.region is null or running.region = :region)
    and exists (
        select 1 from penstock_job
        where import_id = running.id and status in ('pending', 'leased')
    )
order by due_in
limit 1;

-- name: claim_jobs
-- Expired leases first: these jobs are partly done.
update penstock_job
set status = 'leased',
    fence = fence + 1,
    lease_owner = :owner,
    claimed_at = :now,
    lease_until = :now + :lease,
    rescues = rescues + (status = 'leased'),
    errors = case when status = 'pending' then errors else json_insert(
        case when json_array_length(errors) >= :max_errors
            then json_remove(errors, '$[0]') else errors end,
        '$[#]',
        json_object(
            'at', :now, 'owner', lease_owner, 'fence', fence, 'code', 'lease_lost',
            'message', 'the lease expired', 'cursor', cursor
        )
    ) end
where id in (
    select id from (
        select * from (
            select id, 0 as is_new from penstock_job
            where import_id = :import_id and status = 'leased' and lease_until < :now
                and rescues + 1 < :max_rescues
            order by lease_until limit :most
        )
        union all
        select * from (
            select id, 1 as is_new from penstock_job
            where import_id = :import_id and status = 'pending' and run_at <= :now
            order by run_at, id limit :most
        )
        order by is_new limit :most
    )
) and exists (
    select 1 from penstock_import where id = :import_id and status = 'running'
)
returning *;

-- name: find_import_of_job
select id, mode, since, tracked, (
    select cursor from penstock_job where import_id = running.id and kind = 'plan'
) as plan_cursor
from penstock_import as running
where running.status = 'running'
    and exists (
        select 1 from json_each(:declarations)
        where key = running.dataset and value = running.declaration
    )
    and (:region is null or running.region is null or running.region = :region)
    and id = (select import_id from penstock_job where id = :job);

-- name: claim_job
update penstock_job
set status = 'leased',
    fence = fence + 1,
    lease_owner = :owner,
    claimed_at = :now,
    lease_until = :now + :lease,
    rescues = rescues + (status = 'leased'),
    errors = case when status = 'pending' then errors else json_insert(
        case when json_array_length(errors) >= :max_errors
            then json_remove(errors, '$[0]') else errors end,
        '$[#]',
        json_object(
            'at', :now, 'owner', lease_owner, 'fence', fence, 'code', 'lease_lost',
            'message', 'the lease expired', 'cursor', cursor
        )
    ) end
where id = :job and (
    (status = 'pending' and run_at <= :now)
    or (status = 'leased' and lease_until < :now and rescues + 1 < :max_rescues)
) and exists (
    select 1 from penstock_import where id = :import_id and status = 'running'
)
returning *;

-- name: due_jobs
select id, region, (
    select cursor from penstock_job where import_id = due.import_id and kind = 'plan'
) as plan_cursor
from (
    select penstock_job.id, penstock_job.import_id, running.region,
        rank() over (order by priority desc, turn, running.id) as position,
        row_number() over (
            partition by running.id
            order by penstock_job.status = 'pending', coalesce(lease_until, run_at),
                penstock_job.id
        ) as number
    from penstock_import as running
    join penstock_job on penstock_job.import_id = running.id
    where running.status = 'running' and running.status in ('planning', 'running')
        and exists (
            select 1 from json_each(:declarations)
            where key = running.dataset and value = running.declaration
        )
        and (:region is null or running.region is null or running.region = :region)
        and (
            (penstock_job.status = 'leased' and lease_until < :now)
            or (penstock_job.status = 'pending' and run_at <= :now)
        )
) as due
where number <= :most
order by position, number;

-- name: take_turn
update penstock_import
set turn = (select max(turn) + 1 from penstock_import)
where id = :import_id;

-- name: count_rescue
update penstock_import set rescues = rescues + 1 where id = :import_id;

-- name: renew_lease
update penstock_job
set lease_until = :now + :lease
where id = :job and fence = :fence and status = 'leased'
returning page_seq;

-- name: advance_job
-- The page number must be the next one, so a page cannot be committed twice.
update penstock_job
set page_seq = page_seq + 1,
    cursor = :cursor,
    status = case when :proof is null then 'leased' else 'done' end,
    proof = :proof,
    lease_owner = case when :proof is null then lease_owner end,
    lease_until = case when :proof is null then :now + :lease end,
    finished_at = case when :proof is null then null else :now end,
    attempts = 0,
    rescues = 0,
    snoozes = 0
where id = :job and fence = :fence and status = 'leased' and page_seq = :page_seq
returning page_seq, exists (
    select 1 from penstock_quarantine where dataset = :dataset and resolved is null
) as has_open_rejections;

-- name: count_page
update penstock_job
set requests = requests + :requests,
    seen = seen + :seen,
    inserted = inserted + :inserted,
    updated = updated + :updated,
    unchanged = unchanged + :unchanged,
    quarantined = quarantined + :quarantined,
    dropped = dropped + :dropped,
    duplicates = duplicates + :duplicates
where id = :job;

-- name: add_page
insert into penstock_page
    (job_id, page_seq, fence, seen, cursor_before, cursor_after, imprint, memo,
    committed_at)
values
    (:job, :page_seq, :fence, :seen, :before, :after, :imprint,
    :memo, :now);

-- name: find_memo
select memo from penstock_page
where imprint = :imprint
    and not exists (
        select 1 from penstock_quarantine
        where dataset = :dataset and resolved is null
    )
limit 1;

-- name: postpone_job
-- A page that was committed without its worker knowing counts as progress, too.
update penstock_job
set status = 'pending',
    run_at = :now + :delay,
    released_at = :now,
    lease_owner = null,
    lease_until = null,
    rescues = 0,
    attempts = attempts + (:blame and page_seq = :page_seq),
    snoozes = snoozes + (1 - :blame),
    errors = case when :code is null then errors else json_insert(
        case when json_array_length(errors) >= :max_errors
            then json_remove(errors, '$[0]') else errors end,
        '$[#]',
        json_object(
            'at', :now, 'owner', lease_owner, 'fence', fence, 'code', :code,
            'message', :message, 'cursor', cursor
        )
    ) end
where id = :job and fence = :fence and status = 'leased'
returning page_seq;

-- name: release_job
update penstock_job
set status = 'pending',
    run_at = :now,
    released_at = :now,
    lease_owner = null,
    lease_until = null,
    rescues = 0
where id = :job and fence = :fence and status = 'leased'
returning page_seq;

-- name: fail_job
update penstock_job
set status = 'failed',
    finished_at = :now,
    lease_owner = null,
    lease_until = null,
    attempts = attempts + 1,
    errors = json_insert(
        case when json_array_length(errors) >= :max_errors
            then json_remove(errors, '$[0]') else errors end,
        '$[#]',
        json_object(
            'at', :now, 'owner', lease_owner, 'fence', fence, 'code', :code,
            'message', :message, 'cursor', cursor
        )
    )
where id = :job and fence = :fence and status = 'leased' and page_seq = :page_seq
returning page_seq;

-- name: note_repeated_keys
-- The first examples are enough.
update penstock_job
set repeated_keys = :keys
where id = :job and repeated_keys is null;

-- name: note_first_keys
update penstock_job
set first_keys = :digest
where id = :job and fence = :fence and status = 'leased'
returning page_seq;

-- name: find_same_first_keys
select shard_key from penstock_job
where import_id = :import_id
    and first_keys = :digest
    and id <> :job
    and status <> 'split'
order by id
limit 1;

-- name: split_job
update penstock_job
set status = 'split',
    finished_at = :now,
    lease_owner = null,
    lease_until = null
where id = :job and fence = :fence and status = 'leased'
returning page_seq;

-- name: retry_job
update penstock_job
set status = 'pending',
    run_at = :now,
    attempts = 0,
    rescues = 0,
    snoozes = 0,
    finished_at = null
where id = :job and status = 'failed'
    and import_id in (
        select id from penstock_import where status in ('running', 'failed')
    )
returning import_id;

-- name: retry_failed_jobs
update penstock_job
set status = 'pending',
    run_at = :now,
    attempts = 0,
    rescues = 0,
    snoozes = 0,
    finished_at = null
where status = 'failed' and id in (
    select id from penstock_job
    where import_id = :import_id and status = 'failed'
        and id > :after
        and import_id in (
            select id from penstock_import where status in ('running', 'failed')
        )
    order by id
    limit :most
)
returning id;

-- name: cancel_jobs
update penstock_job
set status = 'cancelled', finished_at = :now, lease_owner = null, lease_until = null
where import_id = :import_id and status in ('pending', 'leased');

-- name: get_job
select * from penstock_job where id = :job;

-- name: job_outlook
-- The first entry of an index.
select (
    select id from penstock_job
    where import_id = :import_id and status = 'pending'
    order by run_at, id
    limit 1
) as next_job;

-- name: lease_holders
select lease_owner, max(lease_until) as leased_until from penstock_job
where import_id = :import_id and status = 'leased'
group by lease_owner;

-- name: lease_owners
select distinct lease_owner from penstock_job
where status = 'leased' and lease_until >= :now
    and import_id in (
        select id from penstock_import where status in ('planning', 'running')
    );

-- name: expire_leases
update penstock_job
set lease_until = :now - 1
where status = 'leased' and lease_until >= :now
    and import_id in (
        select id from penstock_import where status in ('planning', 'running')
    )
    and lease_owner in (select value from json_each(:owners))
returning id;

-- name: find_jobs
select * from penstock_job
where id > :after
    and (:status is null or status = :status)
    and (:import_id is null or import_id = :import_id)
    and (:dataset is null or dataset = :dataset)
    and (:kind is null or kind = :kind)
order by id
limit :limit;

-- name: count_problems
-- A cancelled import cannot be retried, so its failed jobs are none.
select dataset, sum(failed_jobs) as failed_jobs, sum(bad_rows) as bad_rows
from (
    select owner.dataset, count(*) as failed_jobs, 0 as bad_rows
    from penstock_import as owner
    join penstock_job
        on penstock_job.import_id = owner.id and penstock_job.status = 'failed'
    where owner.status <> 'cancelled'
    group by owner.dataset
    union all
    select dataset, 0 as failed_jobs, count(*) as bad_rows
    from penstock_quarantine
    where resolved is null
    group by dataset
) as problems
group by dataset
order by dataset;

-- name: count_failed_jobs
select count(*) as jobs from penstock_job
where import_id = :import_id and status = 'failed';

-- name: shard_job_ids
select id from penstock_job
where import_id = :import_id and kind = 'shard'
order by id;

-- name: import_job_ids
select id from penstock_job where import_id = :import_id order by id;

-- name: get_jobs
select * from penstock_job
where id in (select value from json_each(:jobs))
order by id;

-- name: job_pages
select job_id, page_seq, fence, seen, cursor_before, cursor_after from penstock_page
where job_id in (select value from json_each(:jobs))
    and (job_id, page_seq) > (:job, :page)
order by job_id, page_seq
limit :limit;

-- name: count_outstanding
select count(*) as counted
from penstock_job
join penstock_import on penstock_import.id = penstock_job.import_id
where penstock_import.status = 'running'
    and penstock_import.status in ('planning', 'running')
    and penstock_job.status in ('pending', 'leased')
    and exists (
        select 1 from json_each(:declarations)
        where key = penstock_import.dataset and value = penstock_import.declaration
    )
    and (:region is null or penstock_import.region is null
        or penstock_import.region = :region);
