-- The imports of the ledger, and how they end.

-- name: now
select {clock_in_microseconds} as now;

-- name: ring
-- Delivered when the transaction commits: once for a plan, however many jobs it has,
-- and once for the end of an import.
select pg_notify('penstock', current_schema()) as notified;

-- name: find_unfinished_import
select * from penstock_import_told
where dataset = %(dataset)s and mode = %(mode)s and status in ('planning', 'running');

-- name: add_import
insert into penstock_import
    (dataset, mode, status, declaration, tracked, accepts_lost_files,
    accepts_duplicates, since, until, priority, region, created_at)
values
    (%(dataset)s, %(mode)s, 'planning', %(declaration)s, %(tracked)s,
    %(accepts_lost_files)s, %(accepts_duplicates)s, %(since)s, coalesce(%(until)s::timestamptz, {now}), %(priority)s, %(region)s, {now})
on conflict do nothing
returning id;

-- name: accept_lost_files
update penstock_import set accepts_lost_files = true where id = %(import_id)s;

-- name: accept_duplicates
update penstock_import set accepts_duplicates = true where id = %(import_id)s;

-- name: start_import
update penstock_import set status = 'running'
where id = %(import_id)s and status = 'planning';

-- name: hold_import
-- A transaction that ends or reopens an import locks its row before those of its jobs.
-- The lock permits foreign keys: a page that is being committed has locked its job, and
-- the two would deadlock.
select id from penstock_import where id = %(import_id)s for no key update;

-- name: share_import
select id from penstock_import where id = %(import_id)s for share;

-- name: hold_import_of
select id from penstock_import
where id = (select import_id from penstock_job where id = %(job)s)
for no key update;

-- name: find_rival_import
select rival.id from penstock_import as rival
join penstock_import as mine on mine.dataset = rival.dataset and mine.mode = rival.mode
where mine.id = %(import_id)s and rival.id <> mine.id
    and rival.status in ('planning', 'running');

-- name: get_import
select * from penstock_import_told
where id = %(import_id)s;

-- name: recent_imports
select * from penstock_import_told
where (%(dataset)s::text is null or dataset = %(dataset)s)
    and (%(status)s::text is null or status = %(status)s)
    and (%(before)s::bigint is null or id < %(before)s)
order by id desc
limit %(limit)s;

-- name: newest_import
-- Of those that were planned, or of all: imports of older versions have no plan.
select * from penstock_import_told
where dataset = %(dataset)s and status <> 'cancelled'
    and (not %(planned)s::boolean or not exists (
        select 1 from penstock_job
        where import_id = penstock_import_told.id and kind = 'plan' and status <> 'done'
    ))
order by id desc
limit 1;

-- name: count_jobs
-- The planner sees this array, and so how many jobs to expect. For values from JSON it
-- would expect most of the jobs, and read them all for a small import.
select import_id, status, count(*) as jobs from penstock_job
where import_id = any (translate(%(imports)s, '[]', '{}')::bigint[])
    and kind = 'shard'
group by import_id, status;

-- name: count_unproven_jobs
select count(*) as counted from penstock_job
where import_id = %(import_id)s and kind = 'shard' and status = 'done'
    and proof is null;

-- name: repeated_keys
select repeated_keys from penstock_job
where import_id = %(import_id)s and repeated_keys is not null
order by id
limit 3;

-- name: count_import
insert into penstock_import_count as total
    (import_id, slot, pages, requests, seen, inserted, updated, unchanged, quarantined,
    dropped, duplicates, scan_started_at)
values
    (%(import_id)s, %(job)s %% 16, %(pages)s, %(requests)s, %(seen)s, %(inserted)s,
    %(updated)s, %(unchanged)s, %(quarantined)s, %(dropped)s, %(duplicates)s,
    %(provider_time)s)
on conflict (import_id, slot) do update
set {added_to_import};

-- name: count_rescue
insert into penstock_import_count as total (import_id, slot, rescues)
values (%(import_id)s, %(job)s %% 16, 1)
on conflict (import_id, slot) do update set rescues = total.rescues + 1;

-- name: end_import
-- Compare and set: an import that another process has ended is not changed.
update penstock_import
set status = %(status)s, proven = %(proven)s, note = %(note)s, deleted = %(deleted)s,
    finished_at = {now},
    terms = %(terms)s,
    live = %(live)s,
    change_seq = (
        select change_seq from penstock_dataset
        where name = penstock_import.dataset
    )
where id = %(import_id)s and status in ('planning', 'running');

-- name: give_up_import
-- A failed import can be retried until then.
update penstock_import
set status = 'cancelled', note = coalesce(note || '; ', '') || %(reason)s
where id = %(import_id)s and status = 'failed';

-- name: reopen_import
update penstock_import
set status = case when exists (
        select 1 from penstock_job
        where import_id = %(import_id)s and kind = 'plan' and status = 'pending'
    ) then 'planning' else 'running' end,
    finished_at = null, note = null, proven = false
where id = %(import_id)s and status = 'failed';

-- name: has_open_jobs
-- Two subqueries, because each has an index of its own.
select exists (
    select 1 from penstock_job where import_id = %(import_id)s and status = 'pending'
) or exists (
    select 1 from penstock_job where import_id = %(import_id)s and status = 'leased'
) as is_open;

-- name: settled_imports
select id from penstock_import as running
where status = 'running' and not exists (
    select 1 from penstock_job where import_id = running.id and status = 'pending'
) and not exists (
    select 1 from penstock_job where import_id = running.id and status = 'leased'
)
order by id;

-- name: count_keyless_rejections
select count(*) as counted from penstock_quarantine
where import_id = %(import_id)s and key is null;

-- name: add_dataset
insert into penstock_dataset (name, created_at) values (%(dataset)s, {now})
on conflict (name) do nothing;

-- name: set_fields
update penstock_dataset set fields = %(fields)s::jsonb where name = %(dataset)s;

-- name: set_watermark
update penstock_dataset set watermark = %(watermark)s where name = %(dataset)s;

-- name: get_dataset
select * from penstock_dataset where name = %(dataset)s;

-- name: advance_dataset
-- The numbers are taken and used in one transaction that locks the row, so they have
-- no gaps and rise in the order of commits.
update penstock_dataset
set generation = generation + %(generations)s,
    generation_tag = case when %(generations)s > 0 then {tag} else generation_tag end,
    change_seq = change_seq + %(changes)s,
    previous_tag = change_tag,
    change_tag = {tag}
where name = %(dataset)s
returning change_seq, change_tag, previous_tag;

-- name: add_changes
-- Runs after the rows are stored, because it locks the dataset's row until the commit,
-- and others that commit a page wait for it. The numbers are taken and used in one
-- transaction, so they have no gaps and rise in the order of commits.
with advanced as (
    update penstock_dataset
    set generation = generation + %(generations)s,
        generation_tag = case
            when %(generations)s > 0 then {tag} else generation_tag end,
        change_seq = change_seq + %(created)s + %(updated)s + %(deleted)s,
        previous_tag = change_tag,
        change_tag = {tag}
    where name = %(dataset)s
    returning change_seq, change_tag, previous_tag
)
insert into penstock_change_page
    (dataset, first_seq, last_seq, created, updated, keys, import_id, at, tag,
    previous_tag)
select %(dataset)s, change_seq - %(created)s - %(updated)s - %(deleted)s + 1,
    change_seq,
    %(created)s, %(updated)s, %(keys)s::json, %(import_id)s, {now}, change_tag,
    previous_tag
from advanced;

-- name: add_rejection
insert into penstock_quarantine
    (dataset, import_id, job_id, page_seq, position, field, reason, detail, raw, key,
    line, byte_offset, at, resolved)
values
    (%(dataset)s, %(import_id)s, %(job)s, %(page_seq)s, %(position)s, %(field)s,
    %(reason)s, %(detail)s, %(raw)s, %(key)s, %(line)s, %(byte_offset)s, {now},
    %(resolved)s);

-- name: supersede_rejections
-- A proven full import has read everything again: older rejections are resolved.
update penstock_quarantine set resolved = 'superseded'
where dataset = %(dataset)s and resolved is null and import_id < %(import_id)s;

-- name: supersede_keys
-- A good record of the same key was stored since, so the rejection is outdated. Where
-- the order in files decides, only rejections of earlier imports are.
update penstock_quarantine set resolved = 'superseded'
where id in (
    select id from penstock_quarantine
    where dataset = %(dataset)s and resolved is null
        and md5(key) = any(%(hashes)s::text[])
        and (%(before)s::bigint is null or import_id < %(before)s)
    order by id
    for update
);

-- name: add_correction
insert into penstock_correction (import_id, corrects, open_rows)
select %(import_id)s, %(corrects)s, count(*) from penstock_quarantine
where import_id = %(corrects)s and resolved is null
on conflict do nothing;

-- name: supersede_corrected
-- Rows without a key cannot be matched. They count as corrected if the upload had as
-- many rows as were open when it began, and all of them were good.
update penstock_quarantine set resolved = 'superseded'
where key is null and resolved is null and import_id = (
    select corrects from penstock_correction
    where import_id = %(import_id)s and open_rows <= %(rows)s
);

-- name: complaining_jobs
-- Of one import, or of all of a dataset.
select job.id, job.import_id, job.shard_key, count(byte_offset) > 0 as is_of_file
from penstock_quarantine as bad
join penstock_job as job on job.id = bad.job_id
where bad.dataset = %(dataset)s and resolved is null
    and (%(import_id)s::bigint is null or bad.import_id = %(import_id)s)
group by job.id;

-- name: find_rejections
select penstock_quarantine.*, penstock_job.shard_key
from penstock_quarantine
join penstock_job on penstock_job.id = penstock_quarantine.job_id
where penstock_quarantine.dataset = %(dataset)s and resolved is null
    and penstock_quarantine.id > %(after)s
order by penstock_quarantine.id
limit %(limit)s;

-- name: latest_rejections
select penstock_quarantine.*, penstock_job.shard_key
from penstock_quarantine
join penstock_job on penstock_job.id = penstock_quarantine.job_id
where penstock_quarantine.dataset = %(dataset)s and resolved is null
    and (%(before)s::bigint is null or penstock_quarantine.id < %(before)s)
order by penstock_quarantine.id desc
limit %(limit)s;

-- name: last_rejections
-- Of one job, in the order of its file, the last first.
select penstock_quarantine.*, penstock_job.shard_key
from penstock_quarantine
join penstock_job on penstock_job.id = penstock_quarantine.job_id
where job_id = %(job)s and resolved is null
    and (%(page)s::integer is null
        or (penstock_quarantine.page_seq, position) < (%(page)s, %(position)s))
order by penstock_quarantine.page_seq desc, position desc
limit %(limit)s;

-- name: resolve_rejection
update penstock_quarantine set resolved = %(resolved)s
where id = %(id)s and resolved is null;

-- name: explain_rejection
update penstock_quarantine
set field = %(field)s, reason = %(reason)s, detail = %(detail)s
where id = %(id)s and resolved is null;

-- name: is_at_rest
select not exists (
    select 1 from penstock_import
    where dataset = %(dataset)s and status in ('planning', 'running')
) as is_at_rest;

-- name: is_being_loaded
-- Whether the first import of a dataset is running, and started not long ago.
select min(created_at) > {now} - interval '10 minutes'
    and bool_or(status in ('planning', 'running'))
    and not bool_or(status = 'done') as is_loading
from penstock_import
where dataset = %(dataset)s;

-- name: import_rejections
-- As many as fit in the given bytes, and at least one.
select * from (
    select bad.*, row_number() over (order by bad.id) as number,
        sum(octet_length(raw)) over (order by bad.id) as bytes
    from (
        select penstock_quarantine.*, penstock_job.shard_key
        from penstock_quarantine
        join penstock_job on penstock_job.id = penstock_quarantine.job_id
        where penstock_quarantine.import_id = %(import_id)s
            and penstock_quarantine.id > %(after)s
        order by penstock_quarantine.id
        limit %(limit)s
    ) as bad
) as sized
where bytes <= %(bytes)s or number = 1
order by id;

-- name: count_rejections
select reason, field, count(*) as counted from penstock_quarantine
where import_id = %(import_id)s
group by reason, field
order by counted desc, reason, coalesce(field, '');

-- name: open_reasons
select reason, field, count(*) as counted, max(id) as last_id from penstock_quarantine
where dataset = %(dataset)s and resolved is null
group by reason, field
order by counted desc, reason, coalesce(field, '')
limit %(limit)s;

-- name: discard_rows
update penstock_quarantine set resolved = 'discarded'
where dataset = %(dataset)s and resolved is null and id <= %(until)s
    and id = any(translate(%(ids)s, '[]', '{}')::bigint[]);

-- name: discard_reason
update penstock_quarantine set resolved = 'discarded'
where resolved is null and id in (
    select id from penstock_quarantine
    where dataset = %(dataset)s and resolved is null and id <= %(until)s
        and reason = %(reason)s and field is not distinct from %(field)s::text
    order by id
    limit %(limit)s
    for update
);

-- name: last_done_import
select *, change_seq = (
    select change_seq from penstock_dataset where name = %(dataset)s
) as is_latest
from penstock_import_told
where dataset = %(dataset)s and mode = %(mode)s and status = 'done'
order by id desc
limit 1;

-- name: planned_shards
select shard_key from penstock_job
where import_id = %(import_id)s and kind = 'shard' and parent is null
order by id;

-- name: repeat_jobs
insert into penstock_job
    (import_id, dataset, shard_key, region, status, run_at, seen, unchanged,
    quarantined, dropped, duplicates, proof, created_at, finished_at)
select %(import_id)s, dataset, shard_key, region, 'done', {now}, seen,
    inserted + updated + unchanged, quarantined, dropped, duplicates, %(proof)s, {now},
    {now}
from penstock_job
where import_id = %(of)s and kind = 'shard'
order by id;

-- name: repeat_counts
insert into penstock_import_count
    (import_id, slot, seen, unchanged, quarantined, dropped, duplicates)
select import_id, 0, sum(seen), sum(unchanged), sum(quarantined), sum(dropped),
    sum(duplicates)
from penstock_job
where import_id = %(import_id)s
group by import_id;

-- name: import_that_read
-- An import whose files had not changed has read nothing; its bad rows belong to the
-- import before it.
select earlier.id from penstock_import as earlier
join penstock_import as mine
    on mine.dataset = earlier.dataset and mine.mode = earlier.mode
where mine.id = %(import_id)s and earlier.id <= mine.id
    and (earlier.id = mine.id or earlier.status = 'done')
    and not exists (
        select 1 from penstock_job
        where import_id = earlier.id and status = 'done' and proof = 'unchanged'
    )
order by earlier.id desc
limit 1;

-- name: accept_rejection
-- One that was resolved in the same transaction.
update penstock_quarantine set resolved = 'accepted' where id = %(id)s;

-- name: renew_rejections
-- Marks that the stored row of the key is from the same import, not written since.
update penstock_quarantine set at = {now}
where dataset = %(dataset)s and import_id = %(import_id)s and resolved is null
    and md5(key) = md5(%(key)s);

-- name: publish_dataset
-- Cached responses become outdated.
update penstock_dataset
set generation = generation + 1, generation_tag = {tag}
where name = %(dataset)s;

-- name: dataset_states
select name, generation, generation_tag, change_seq, change_tag, watermark,
    fields = '{}'::jsonb as is_dropped
from penstock_dataset;

-- name: dataset_state
select generation, generation_tag, change_seq, change_tag, watermark
from penstock_dataset
where name = %(dataset)s;

-- name: has_change
-- The last change is found even if all entries were removed, and one without an entry
-- by the entry that follows it.
select exists (
    select 1 from penstock_dataset
    where name = %(dataset)s and change_seq = %(seq)s and change_tag = %(tag)s
) or exists (
    select 1 from (
        select first_seq, tag, previous_tag from penstock_change_page
        where dataset = %(dataset)s and last_seq >= %(seq)s
        order by last_seq
        limit 1
    ) as page
    where (first_seq <= %(seq)s and tag = %(tag)s)
        or (first_seq = %(seq)s + 1 and coalesce(previous_tag, tag) = %(tag)s)
) as is_known;
