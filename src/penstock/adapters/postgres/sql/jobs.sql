-- The jobs of the ledger. Every statement that takes a fence touches no row when the
-- job has moved on; the caller then rolls back and raises LeaseLost.

-- name: add_jobs
-- The import is shared while its jobs are stored, so that it cannot end meanwhile.
with owner as materialized (
    select id, dataset, region from penstock_import
    where id = %(import_id)s and status in ('planning', 'running')
    for share
)
insert into penstock_job
    (import_id, parent, dataset, shard_key, region, run_at, created_at)
select owner.id, %(parent)s, owner.dataset, told.shard_key, owner.region, {now}, {now}
from owner,
    jsonb_array_elements_text(%(shard_keys)s::jsonb)
        with ordinality as told (shard_key, place)
order by told.place
on conflict (import_id, shard_key) do nothing;

-- name: bury_lost_jobs
-- Three leases in a row that ended without a word: whatever the job does to its
-- worker, it will do again.
update penstock_job
set status = 'failed',
    rescues = rescues + 1,
    finished_at = {now},
    lease_owner = null,
    lease_until = null,
    errors = {kept_errors} || jsonb_build_array(jsonb_build_object(
        'at', {now_in_microseconds}, 'owner', lease_owner, 'fence', fence,
        'code', 'lease_lost',
        'message', 'the lease ended without a word, ' || (rescues + 1)
            || ' times in a row',
        'cursor', cursor
    ))
where id in (
    select penstock_job.id
    from penstock_job
    join penstock_import on penstock_import.id = penstock_job.import_id
    where penstock_import.status = 'running' and penstock_job.status = 'leased'
        and lease_until < {now} and rescues + 1 >= %(max_rescues)s
    for update of penstock_job skip locked
);

-- name: count_lost_jobs
select count(*) as counted
from penstock_job
join penstock_import on penstock_import.id = penstock_job.import_id
where penstock_import.status = 'running' and penstock_job.status = 'leased'
    and lease_until < {now} and rescues + 1 >= %(max_rescues)s;

-- name: find_due_import
-- Few imports run at a time, and each is asked for its first due job by index; the
-- order then serves priorities first and equals in turn.
select id, mode, since, tracked, exists (
    select 1 from penstock_job
    where status = 'leased' and lease_until < {now} and rescues + 1 >= %(max_rescues)s
        and import_id in (select id from penstock_import where status = 'running')
) as is_lost
from penstock_import as running
where {workable}
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
    where {workable}
) as imports;

-- name: claim_jobs
-- Lost leases first: somebody has begun those. What another worker is just claiming is
-- passed over without waiting.
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
set status = 'leased',
    fence = fence + 1,
    lease_owner = %(owner)s,
    lease_until = {now} + %(lease)s * interval '1 microsecond',
    rescues = rescues + (status = 'leased')::integer,
    errors = case when status = 'pending' then errors else {kept_errors}
        || jsonb_build_array(jsonb_build_object(
            'at', {now_in_microseconds}, 'owner', lease_owner, 'fence', fence,
            'code', 'lease_lost', 'message', 'the lease ended without a word',
            'cursor', cursor
        )) end
where id in (select id from lost union all select id from due)
returning *;

-- name: take_turn
-- Whoever changes the row at this moment serves the same import: no use waiting.
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
-- The page number must follow, so a page that is committed twice is refused.
update penstock_job
set {moved_on}
from (select %(cursor)s::text as cursor, %(proof)s::text as proof) as come
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
-- A page of which every row is thought to be new, and that is known to have no bad one.
-- If the fence has moved on, or rows wait in quarantine, nothing is written.
-- What others wait for is held last: the import's counts, then the dataset's row, by
-- which changes have numbers without gaps that rise in the order of commits.
with advanced as (
    update penstock_job
    set {moved_on}, {added_to_job}
    from (select %(cursor)s::text as cursor, %(proof)s::text as proof) as come
    where id = %(job)s and fence = %(fence)s and status = 'leased'
        and page_seq = %(page_seq)s
        and not exists (
            select 1 from penstock_quarantine
            where dataset = %(dataset)s and resolved is null
        )
    returning page_seq
), noted as (
    insert into penstock_page
        (job_id, page_seq, fence, seen, cursor_before, cursor_after, imprint, memo,
        committed_at)
    select %(job)s, page_seq, %(fence)s, %(seen)s, %(before)s, %(after)s, %(imprint)s,
        %(memo)s, {now}
    from advanced
), totalled as (
    insert into penstock_import_count as kept
        (import_id, slot, pages, requests, seen, inserted, unchanged, dropped,
        duplicates, scan_started_at)
    select %(import_id)s, %(job)s %% 16, 1, %(requests)s, %(seen)s, %(inserted)s,
        %(unchanged)s, %(dropped)s, %(duplicates)s, %(provider_time)s
    from advanced
    on conflict (import_id, slot) do update
    set {added_to_import}
    returning 1
), numbered as (
    update penstock_dataset
    set change_seq = change_seq + %(inserted)s, previous_tag = change_tag,
        change_tag = {tag}
    where name = %(dataset)s and exists (select 1 from totalled)
    returning change_seq, change_tag, previous_tag
), changed as (
    insert into penstock_change_page
        (dataset, first_seq, last_seq, created, updated, keys, import_id, at, tag,
        previous_tag)
    select %(dataset)s, change_seq - %(inserted)s + 1, change_seq, %(inserted)s, 0,
        %(keys)s::json, %(import_id)s, {now}, change_tag, previous_tag
    from numbered
)
{insert}
where exists (select 1 from advanced);

-- name: repeat_page
-- What the page brought stands in its memo. Where the fence has moved on, nothing is
-- written, and no page number returned.
with brought as materialized (
    select * from ({known}) as page where holds
), advanced as (
    update penstock_job
    set {moved_on},
        requests = requests + %(requests)s,
        seen = penstock_job.seen + come.seen,
        unchanged = unchanged + come.seen - come.dropped,
        dropped = penstock_job.dropped + come.dropped
    from brought as come
    where id = %(job)s and fence = %(fence)s and status = 'leased'
        and page_seq = %(page_seq)s
    returning penstock_job.page_seq
), noted as (
    insert into penstock_page
        (job_id, page_seq, fence, seen, cursor_before, cursor_after, imprint, memo,
        committed_at)
    select %(job)s, page_seq, %(fence)s, seen, %(before)s, cursor_after, %(imprint)s,
        memo, {now}
    from advanced, brought
), totalled as (
    insert into penstock_import_count as kept
        (import_id, slot, pages, requests, seen, unchanged, dropped, scan_started_at)
    select %(import_id)s, %(job)s %% 16, 1, %(requests)s, seen, seen - dropped, dropped,
        %(provider_time)s
    from advanced, brought
    on conflict (import_id, slot) do update
    set {added_to_import}
)
select memo, advanced.page_seq from brought left join advanced on true;

-- name: find_own_page
-- Nobody else commits a page under our fence.
select page_seq, memo from penstock_page
where job_id = %(job)s and page_seq = %(page_seq)s + 1 and fence = %(fence)s;

-- name: postpone_job
-- A page that was committed without its worker hearing of it was progress all the same.
update penstock_job
set status = 'pending',
    run_at = {now} + %(delay)s * interval '1 microsecond',
    lease_owner = null,
    lease_until = null,
    rescues = 0,
    attempts = attempts
        + (%(blame)s = 1 and page_seq = %(page_seq)s)::integer,
    snoozes = snoozes + (1 - %(blame)s),
    errors = case when %(code)s::text is null then errors else {kept_errors}
        || jsonb_build_array({fault}) end
where id = %(job)s and fence = %(fence)s and status = 'leased'
returning page_seq;

-- name: release_job
update penstock_job
set status = 'pending',
    run_at = {now},
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
    errors = {kept_errors} || jsonb_build_array({fault})
where id = %(job)s and fence = %(fence)s and status = 'leased'
    and page_seq = %(page_seq)s
returning page_seq;

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
-- Found by the indexes of what is open. A job that is claimed or given back meanwhile
-- is among them all the same, and none is opened: the import's row is held.
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
-- Both are at an end of their index.
select (
    select max(lease_until) from penstock_job
    where import_id = %(import_id)s and status = 'leased'
) as leased_until, (
    select id from penstock_job
    where import_id = %(import_id)s and status = 'pending'
    order by run_at, id
    limit 1
) as next_job;

-- name: find_jobs
select * from penstock_job
where id > %(after)s
    and (%(status)s::text is null or status = %(status)s)
    and (%(import_id)s::bigint is null or import_id = %(import_id)s)
    and (%(dataset)s::text is null or dataset = %(dataset)s)
order by id
limit %(limit)s;

-- name: import_job_ids
select id from penstock_job where import_id = %(import_id)s order by id;

-- name: get_jobs
-- Each job is looked up by itself, whatever the planner believes of the table.
select job.* from unnest(translate(%(jobs)s, '[]', '{}')::bigint[]) as wanted (id)
cross join lateral (
    select * from penstock_job where id = wanted.id limit 1
) as job
order by id;

-- name: job_pages
-- The same: as a condition on all pages, the list would be searched for each of them
-- where the planner expects few. Jobs come in their order, so that reading ends with the
-- last page that is wanted.
select page.* from (
    select id from unnest(translate(%(jobs)s, '[]', '{}')::bigint[]) as each (id)
    where id >= %(job)s
    order by id
) as wanted
cross join lateral (
    select job_id, page_seq, fence, seen, cursor_before, cursor_after
    from penstock_page
    where job_id = wanted.id and (job_id, page_seq) > (%(job)s, %(page)s)
    order by page_seq
    limit %(limit)s
) as page
order by wanted.id, page.page_seq
limit %(limit)s;

-- name: count_outstanding
-- Two questions, because each has an index of its own.
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
where {workable};
