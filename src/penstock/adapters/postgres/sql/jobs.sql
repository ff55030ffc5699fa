-- The jobs of the ledger. Every statement with a fence changes no row when the job has
-- moved on; the caller then rolls back and raises LeaseLost.

-- name: add_jobs
-- The import is locked while its jobs are stored, so that it cannot end meanwhile.
with owner as materialized (
    select id, dataset, region from penstock_import
    where id = %(import_id)s and status in ('planning', 'running')
    for share
)
insert into penstock_job
    (import_id, parent, dataset, shard_key, region, run_at, created_at)
select owner.id, %(parent)s, owner.dataset, shard.shard_key, owner.region, {now}, {now}
from owner,
    jsonb_array_elements_text(%(shard_keys)s::jsonb)
        with ordinality as shard (shard_key, position)
order by shard.position
on conflict (import_id, shard_key) do nothing;

-- name: bury_lost_jobs
-- Several leases in a row expired: the job seems to kill its workers, and would do so
-- again.
update penstock_job
set status = 'failed',
    rescues = rescues + 1,
    finished_at = {now},
    lease_owner = null,
    lease_until = null,
    errors = {recent_errors} || jsonb_build_array(jsonb_build_object(
        'at', {now_in_microseconds}, 'owner', lease_owner, 'fence', fence,
        'code', 'lease_lost',
        'message', 'the lease expired ' || (rescues + 1)
            || ' times in a row',
        'cursor', cursor
    ))
where id in (
    select penstock_job.id
    from penstock_job
    join penstock_import on penstock_import.id = penstock_job.import_id
    where penstock_import.status in ('planning', 'running') and penstock_job.status = 'leased'
        and lease_until < {now} and rescues + 1 >= %(max_rescues)s
    for update of penstock_job skip locked
)
returning id, import_id, dataset, shard_key, rescues;

-- name: count_lost_jobs
select count(*) as counted
from penstock_job
join penstock_import on penstock_import.id = penstock_job.import_id
where penstock_import.status in ('planning', 'running') and penstock_job.status = 'leased'
    and lease_until < {now} and rescues + 1 >= %(max_rescues)s;

-- name: find_due_import
-- Few imports run at a time, and the first due job of each is found by index; they are
-- served by priority, and round robin within a priority.
select id, mode, since, tracked, (
    select cursor from penstock_job where import_id = running.id and kind = 'plan'
) as plan_cursor, exists (
    select 1 from penstock_job
    where status = 'leased' and lease_until < {now} and rescues + 1 >= %(max_rescues)s
        and import_id in (select id from penstock_import where status = 'running')
) as is_lost
from penstock_import as running
where {claimable}
    and running.id not in (
        select value::bigint from jsonb_array_elements_text(%(tried)s::jsonb)
    )
    and (
        exists (
            select 1 from penstock_job
            where import_id = running.id and status = 'leased' and lease_until < {now}
        )
        or exists (
            select 1 from penstock_job
            where import_id = running.id and status = 'pending' and run_at <= {now}
        )
    )
order by priority desc, turn, id
limit 1;

-- name: next_due
select (extract(epoch from min(due_at) - {now}) * 1000000)::bigint as due_in
from (
    select least(
        (
            select min(run_at) from penstock_job
            where import_id = running.id and status = 'pending'
        ),
        (
            select min(lease_until) from penstock_job
            where import_id = running.id and status = 'leased'
        )
    ) as due_at
    from penstock_import as running
    where {claimable}
) as imports;

-- name: claim_jobs
-- Expired leases first: those jobs were started. Jobs that another worker is claiming
-- are skipped without waiting.
with lost as materialized (
    select id from penstock_job
    where import_id = %(import_id)s and status = 'leased' and lease_until < {now}
        and rescues + 1 < %(max_rescues)s
    order by lease_until
    limit %(most)s
    for update skip locked
), due as materialized (
    select id from penstock_job
    where import_id = %(import_id)s and status = 'pending' and run_at <= {now}
        and exists (
            select 1 from penstock_import
            where id = %(import_id)s and status = 'running'
        )
    order by run_at, id
    limit greatest(%(most)s - (select count(*) from lost), 0)
    for update skip locked
)
update penstock_job
set {claimed_job}
where id in (select id from lost union all select id from due)
returning *;

-- name: find_import_of_job
select id, mode, since, tracked, (
    select cursor from penstock_job where import_id = running.id and kind = 'plan'
) as plan_cursor
from penstock_import as running
where {claimable}
    and id = (select import_id from penstock_job where id = %(job)s);

-- name: claim_job
-- A job that another worker is claiming is left to it without waiting.
with due as materialized (
    select id from penstock_job
    where id = %(job)s and (
        (status = 'pending' and run_at <= {now})
        or (status = 'leased' and lease_until < {now}
            and rescues + 1 < %(max_rescues)s)
    )
    and exists (
        select 1 from penstock_import
        where id = %(import_id)s and status = 'running'
    )
    for update skip locked
)
update penstock_job
set {claimed_job}
where id in (select id from due)
returning *;

-- name: due_jobs
select job.id, running.region, (
    select cursor from penstock_job where import_id = running.id and kind = 'plan'
) as plan_cursor
from penstock_import as running
cross join lateral (
    select * from (
        (
            select id, 0 as is_new, lease_until as due_at from penstock_job
            where import_id = running.id and status = 'leased' and lease_until < {now}
            order by lease_until, id
            limit %(most)s
        )
        union all
        (
            select id, 1 as is_new, run_at as due_at from penstock_job
            where import_id = running.id and status = 'pending' and run_at <= {now}
            order by run_at, id
            limit %(most)s
        )
    ) as either
    order by is_new, due_at, id
    limit %(most)s
) as job
where {claimable}
order by running.priority desc, running.turn, running.id,
    job.is_new, job.due_at, job.id;

-- name: take_turn
-- A transaction that has locked the row serves the same import: no need to wait.
update penstock_import
set turn = nextval('penstock_turn')
where id = (
    select id from penstock_import where id = %(import_id)s
    for no key update skip locked
);

-- name: renew_lease
update penstock_job
set lease_until = {now} + %(lease)s * interval '1 microsecond'
where id = %(job)s and fence = %(fence)s and status = 'leased'
returning page_seq;

-- name: advance_job
-- The page number must be the next one, so a page cannot be committed twice.
update penstock_job
set {advanced_job}
from (select %(cursor)s::text as cursor, %(proof)s::text as proof) as page
where id = %(job)s and fence = %(fence)s and status = 'leased'
    and page_seq = %(page_seq)s
returning page_seq, exists (
    select 1 from penstock_quarantine where dataset = %(dataset)s and resolved is null
) as has_open_rejections;

-- name: count_page
update penstock_job
set {added_to_job}
where id = %(job)s;

-- name: add_page
insert into penstock_page
    (job_id, page_seq, fence, seen, cursor_before, cursor_after, imprint, memo,
    committed_at)
values
    (%(job)s, %(page_seq)s, %(fence)s, %(seen)s, %(before)s, %(after)s, %(imprint)s,
    %(memo)s, {now});

-- name: store_page
-- A page whose rows are all expected to be new, and that has no bad row. If the fence
-- has moved on, or rows are in quarantine, nothing is written.
-- What others wait for is locked last: the import's counts, then the dataset's row,
-- which numbers changes without gaps in the order of commits.
-- No dataset has a name with an underscore in front, so none is hidden by these.
with _advanced as (
    update penstock_job
    set {advanced_job}, {added_to_job}
    from (select %(cursor)s::text as cursor, %(proof)s::text as proof) as page
    where id = %(job)s and fence = %(fence)s and status = 'leased'
        and page_seq = %(page_seq)s
        and not exists (
            select 1 from penstock_quarantine
            where dataset = %(dataset)s and resolved is null
        )
    returning page_seq
), _added_page as (
    insert into penstock_page
        (job_id, page_seq, fence, seen, cursor_before, cursor_after, imprint, memo,
        committed_at)
    select %(job)s, page_seq, %(fence)s, %(seen)s, %(before)s, %(after)s, %(imprint)s,
        %(memo)s, {now}
    from _advanced
), _counted as (
    insert into penstock_import_count as total
        (import_id, slot, pages, requests, seen, inserted, unchanged, dropped,
        duplicates, scan_started_at)
    select %(import_id)s, %(job)s %% 16, 1, %(requests)s, %(seen)s, %(inserted)s,
        %(unchanged)s, %(dropped)s, %(duplicates)s, %(provider_time)s
    from _advanced
    on conflict (import_id, slot) do update
    set {added_to_import}
    returning 1
), _numbered as (
    update penstock_dataset
    set change_seq = change_seq + %(inserted)s, previous_tag = change_tag,
        change_tag = {tag}
    where name = %(dataset)s and exists (select 1 from _counted)
    returning change_seq, change_tag, previous_tag
), _changes as (
    insert into penstock_change_page
        (dataset, first_seq, last_seq, created, updated, keys, import_id, at, tag,
        previous_tag)
    select %(dataset)s, change_seq - %(inserted)s + 1, change_seq, %(inserted)s, 0,
        %(keys)s::json, %(import_id)s, {now}, change_tag, previous_tag
    from _numbered
)
{insert}
where exists (select 1 from _advanced);

-- name: repeat_page
-- The counts of the earlier page are in its memo. Where the fence has moved on, nothing
-- is written, and no page number returned.
with earlier as materialized (
    select * from ({stored_page}) as stored where is_stored
), advanced as (
    update penstock_job
    set {advanced_job},
        requests = requests + %(requests)s,
        seen = penstock_job.seen + page.seen,
        unchanged = unchanged + page.seen - page.dropped,
        dropped = penstock_job.dropped + page.dropped
    from earlier as page
    where id = %(job)s and fence = %(fence)s and status = 'leased'
        and page_seq = %(page_seq)s
    returning penstock_job.page_seq
), added_page as (
    insert into penstock_page
        (job_id, page_seq, fence, seen, cursor_before, cursor_after, imprint, memo,
        committed_at)
    select %(job)s, page_seq, %(fence)s, seen, %(before)s, cursor_after, %(imprint)s,
        memo, {now}
    from advanced, earlier
), counted as (
    insert into penstock_import_count as total
        (import_id, slot, pages, requests, seen, unchanged, dropped, scan_started_at)
    select %(import_id)s, %(job)s %% 16, 1, %(requests)s, seen, seen - dropped, dropped,
        %(provider_time)s
    from advanced, earlier
    on conflict (import_id, slot) do update
    set {added_to_import}
)
select memo, advanced.page_seq from earlier left join advanced on true;

-- name: find_own_page
-- No other worker commits a page with our fence.
select page_seq, memo from penstock_page
where job_id = %(job)s and page_seq = %(page_seq)s + 1 and fence = %(fence)s;

-- name: postpone_job
-- A page that was committed counts as progress even if the worker lost the response.
update penstock_job
set status = 'pending',
    run_at = {now} + %(delay)s * interval '1 microsecond',
    released_at = {now},
    lease_owner = null,
    lease_until = null,
    rescues = 0,
    attempts = attempts
        + (%(blame)s = 1 and page_seq = %(page_seq)s)::integer,
    snoozes = snoozes + (1 - %(blame)s),
    errors = case when %(code)s::text is null then errors else {recent_errors}
        || jsonb_build_array({fault}) end
where id = %(job)s and fence = %(fence)s and status = 'leased'
returning page_seq;

-- name: release_job
update penstock_job
set status = 'pending',
    run_at = {now},
    released_at = {now},
    lease_owner = null,
    lease_until = null,
    rescues = 0
where id = %(job)s and fence = %(fence)s and status = 'leased'
returning page_seq;

-- name: fail_job
update penstock_job
set status = 'failed',
    finished_at = {now},
    lease_owner = null,
    lease_until = null,
    attempts = attempts + 1,
    errors = {recent_errors} || jsonb_build_array({fault})
where id = %(job)s and fence = %(fence)s and status = 'leased'
    and page_seq = %(page_seq)s
returning page_seq;

-- name: note_repeated_keys
-- The first examples are enough.
update penstock_job
set repeated_keys = %(keys)s
where id = %(job)s and repeated_keys is null;

-- name: note_first_keys
update penstock_job
set first_keys = %(digest)s
where id = %(job)s and fence = %(fence)s and status = 'leased'
returning page_seq;

-- name: find_same_first_keys
select shard_key from penstock_job
where import_id = %(import_id)s
    and first_keys = %(digest)s
    and id <> %(job)s
    and status <> 'split'
order by id
limit 1;

-- name: split_job
update penstock_job
set status = 'split',
    finished_at = {now},
    lease_owner = null,
    lease_until = null
where id = %(job)s and fence = %(fence)s and status = 'leased'
returning page_seq;

-- name: retry_job
update penstock_job
set status = 'pending',
    run_at = {now},
    attempts = 0,
    rescues = 0,
    snoozes = 0,
    finished_at = null
where id = %(job)s and status = 'failed'
    and import_id in (
        select id from penstock_import where status in ('running', 'failed')
    )
returning import_id;

-- name: retry_failed_jobs
update penstock_job
set status = 'pending',
    run_at = {now},
    attempts = 0,
    rescues = 0,
    snoozes = 0,
    finished_at = null
where status = 'failed' and id in (
    select id from penstock_job
    where import_id = %(import_id)s and status = 'failed'
        and id > %(after)s
        and import_id in (
            select id from penstock_import where status in ('running', 'failed')
        )
    order by id
    limit %(most)s
)
returning id;

-- name: cancel_jobs
-- Uses the indexes of the open jobs. A job that is claimed or released meanwhile is
-- still among them, and none is reopened, because the import's row is locked.
update penstock_job
set status = 'cancelled', finished_at = {now}, lease_owner = null, lease_until = null
where status in ('pending', 'leased') and id in (
    select id from penstock_job where import_id = %(import_id)s and status = 'pending'
    union all
    select id from penstock_job where import_id = %(import_id)s and status = 'leased'
);

-- name: get_job
select * from penstock_job where id = %(job)s;

-- name: job_outlook
-- The first entry of an index.
select (
    select id from penstock_job
    where import_id = %(import_id)s and status = 'pending'
    order by run_at, id
    limit 1
) as next_job;

-- name: lease_holders
select lease_owner, max(lease_until) as leased_until from penstock_job
where import_id = %(import_id)s and status = 'leased'
group by lease_owner;

-- name: lease_owners
select distinct lease_owner from penstock_job
where status = 'leased' and lease_until >= {now}
    and import_id in (
        select id from penstock_import where status in ('planning', 'running')
    );

-- name: expire_leases
update penstock_job
set lease_until = {now} - interval '1 microsecond'
where id in (
    select id from penstock_job
    where status = 'leased' and lease_until >= {now}
        and import_id in (
        select id from penstock_import where status in ('planning', 'running')
    )
        and lease_owner in (
            select jsonb_array_elements_text(%(owners)s::jsonb)
        )
    for update skip locked
)
returning id;

-- name: find_jobs
select * from penstock_job
where id > %(after)s
    and (%(status)s::text is null or status = %(status)s)
    and (%(import_id)s::bigint is null or import_id = %(import_id)s)
    and (%(dataset)s::text is null or dataset = %(dataset)s)
    and (%(kind)s::text is null or kind = %(kind)s)
order by id
limit %(limit)s;

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
where import_id = %(import_id)s and status = 'failed';

-- name: shard_job_ids
select id from penstock_job
where import_id = %(import_id)s and kind = 'shard'
order by id;

-- name: import_job_ids
select id from penstock_job where import_id = %(import_id)s order by id;

-- name: get_jobs
-- Each job is looked up by itself, whatever the table's statistics say.
select job.* from unnest(translate(%(jobs)s, '[]', '{}')::bigint[]) as requested (id)
cross join lateral (
    select * from penstock_job where id = requested.id limit 1
) as job
order by id;

-- name: job_pages
-- The same: where the planner expects few pages, a condition would compare each of them
-- with the whole list. Jobs are read in order, so that reading stops at the last page
-- of the limit.
select page.* from (
    select id from unnest(translate(%(jobs)s, '[]', '{}')::bigint[]) as listed (id)
    where id >= %(job)s
    order by id
) as requested
cross join lateral (
    select job_id, page_seq, fence, seen, cursor_before, cursor_after
    from penstock_page
    where job_id = requested.id and (job_id, page_seq) > (%(job)s, %(page)s)
    order by page_seq
    limit %(limit)s
) as page
order by requested.id, page.page_seq
limit %(limit)s;

-- name: count_outstanding
-- Two subqueries, because each has an index of its own.
select coalesce(sum(
    (
        select count(*) from penstock_job
        where import_id = running.id and status = 'pending'
    ) + (
        select count(*) from penstock_job
        where import_id = running.id and status = 'leased'
    )
), 0)::bigint as counted
from penstock_import as running
where {claimable};
