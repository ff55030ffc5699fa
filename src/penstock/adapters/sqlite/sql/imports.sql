-- The imports of the ledger, datasets, changes and quarantine.

-- name: now
select coalesce(
    :now, cast(round((julianday('now') - 2440587.5) * 86400000) as integer) * 1000
) as now;

-- name: find_unfinished_import
select * from penstock_import
where dataset = :dataset and mode = :mode and status in ('planning', 'running');

-- name: add_import
insert into penstock_import
    (dataset, mode, status, declaration, tracked, accepts_lost_files,
    accepts_duplicates, since, until, priority, region, created_at)
values
    (:dataset, :mode, 'planning', :declaration, :tracked, :accepts_lost_files,
    :accepts_duplicates, :since, coalesce(:until, :now), :priority, :region, :now)
on conflict do nothing
returning id;

-- name: accept_lost_files
update penstock_import set accepts_lost_files = true where id = :import_id;

-- name: accept_duplicates
update penstock_import set accepts_duplicates = true where id = :import_id;

-- name: start_import
update penstock_import set status = 'running' where id = :import_id and status = 'planning';

-- name: ring
-- SQLite has no notifications: idle workers poll.
select 1 as rung;

-- name: hold_import
-- SQLite has one writer at a time: no row lock is needed.
select id from penstock_import where id = :import_id;

-- name: share_import
select id from penstock_import where id = :import_id;

-- name: hold_import_of
select import_id as id from penstock_job where id = :job;

-- name: find_rival_import
select rival.id from penstock_import as rival
join penstock_import as mine on mine.dataset = rival.dataset and mine.mode = rival.mode
where mine.id = :import_id and rival.id <> mine.id
    and rival.status in ('planning', 'running');

-- name: get_import
select * from penstock_import where id = :import_id;

-- name: recent_imports
select * from penstock_import
where (:dataset is null or dataset = :dataset)
    and (:status is null or status = :status)
    and (:before is null or id < :before)
order by id desc
limit :limit;

-- name: newest_import
-- Of those that were planned, or of all: imports of older versions have no plan.
select * from penstock_import
where dataset = :dataset and status <> 'cancelled'
    and (not :planned or not exists (
        select 1 from penstock_job
        where import_id = penstock_import.id and kind = 'plan' and status <> 'done'
    ))
order by id desc
limit 1;

-- name: count_jobs
-- All are counted, by an index alone, and then one less where the plan is.
select import_id, status, sum(jobs) as jobs
from (
    select import_id, status, count(*) as jobs from penstock_job
    where import_id in (select value from json_each(:imports))
    group by import_id, status
    union all
    select import_id, status, -1 as jobs from penstock_job
    where import_id in (select value from json_each(:imports)) and kind = 'plan'
) as counted
group by import_id, status
having sum(jobs) > 0;

-- name: count_unproven_jobs
select count(*) as counted from penstock_job
where import_id = :import_id and kind = 'shard' and status = 'done'
    and proof is null;

-- name: repeated_keys
select repeated_keys from penstock_job
where import_id = :import_id and repeated_keys is not null
order by id
limit 3;

-- name: count_import
update penstock_import
set pages = pages + :pages,
    requests = requests + :requests,
    seen = seen + :seen,
    inserted = inserted + :inserted,
    updated = updated + :updated,
    unchanged = unchanged + :unchanged,
    quarantined = quarantined + :quarantined,
    dropped = dropped + :dropped,
    duplicates = duplicates + :duplicates,
    scan_started_at = case
        when :provider_time is null then scan_started_at
        else min(coalesce(scan_started_at, :provider_time), :provider_time) end
where id = :import_id;

-- name: end_import
-- Compare and set: an import that has already ended is not changed.
update penstock_import
set status = :status, proven = :proven, note = :note, deleted = :deleted,
    finished_at = :now,
    terms = :terms,
    live = :live,
    change_seq = (
        select change_seq from penstock_dataset
        where name = penstock_import.dataset
    )
where id = :import_id and status in ('planning', 'running');

-- name: give_up_import
-- A failed import can be retried until then.
update penstock_import
set status = 'cancelled', note = coalesce(note || '; ', '') || :reason
where id = :import_id and status = 'failed';

-- name: reopen_import
update penstock_import
set status = case when exists (
        select 1 from penstock_job
        where import_id = :import_id and kind = 'plan' and status = 'pending'
    ) then 'planning' else 'running' end, finished_at = null, note = null, proven = 0
where id = :import_id and status = 'failed';

-- name: has_open_jobs
-- Two subqueries, because each uses a partial index.
select exists (
    select 1 from penstock_job where import_id = :import_id and status = 'pending'
) or exists (
    select 1 from penstock_job where import_id = :import_id and status = 'leased'
) as is_open;

-- name: settled_imports
select id from penstock_import as running
where status = 'running' and status in ('planning', 'running') and not exists (
    select 1 from penstock_job where import_id = running.id and status = 'pending'
) and not exists (
    select 1 from penstock_job where import_id = running.id and status = 'leased'
)
order by id;

-- name: count_keyless_rejections
select count(*) as counted from penstock_quarantine
where import_id = :import_id and key is null;

-- name: add_dataset
insert into penstock_dataset (name, generation_tag, change_tag)
values (:dataset, random() & 0xffffffffffff, random() & 0xffffffffffff)
on conflict (name) do nothing;

-- name: set_fields
update penstock_dataset set fields = :fields where name = :dataset;

-- name: advance_dataset
-- The sequence is reserved and filled in one transaction, so it has no gaps.
update penstock_dataset
set generation = generation + :generations,
    generation_tag = case
        when :generations > 0 then random() & 0xffffffffffff else generation_tag end,
    change_seq = change_seq + :changes,
    previous_tag = change_tag,
    change_tag = random() & 0xffffffffffff
where name = :dataset
returning change_seq, change_tag, previous_tag;

-- name: set_watermark
update penstock_dataset
set watermark = :watermark
where name = :dataset;

-- name: get_dataset
select * from penstock_dataset where name = :dataset;

-- name: add_change
insert into penstock_change
    (dataset, seq, kind, key, import_id, at, tag, previous_tag)
values (?, ?, ?, ?, ?, ?, ?, ?);

-- name: add_rejection
insert into penstock_quarantine
    (dataset, import_id, job_id, page_seq, position, field, reason, detail, raw, key,
    line, byte_offset, at, resolved)
values
    (:dataset, :import_id, :job, :page_seq, :position, :field,
    :reason, :detail, :raw, :key, :line, :byte_offset, :now, :resolved);

-- name: supersede_rejections
-- A proven full import has read everything again: older rejections are resolved.
update penstock_quarantine set resolved = 'superseded'
where dataset = :dataset and resolved is null and import_id < :import_id;

-- name: supersede_keys
-- A good record of the same key is stored now. Where the order in files decides, only
-- rejections of earlier imports are resolved.
update penstock_quarantine set resolved = 'superseded'
where dataset = :dataset and resolved is null
    and key in (select value from json_each(:keys))
    and (:before is null or import_id < :before);

-- name: add_correction
insert into penstock_correction (import_id, corrects, open_rows)
select :import_id, :corrects, count(*) from penstock_quarantine
where import_id = :corrects and resolved is null
on conflict do nothing;

-- name: supersede_corrected
-- Rows without a key cannot be matched. They count as corrected if the upload had as
-- many rows as were open when it began, and all of them were good.
update penstock_quarantine set resolved = 'superseded'
where key is null and resolved is null and import_id = (
    select corrects from penstock_correction
    where import_id = :import_id and open_rows <= :rows
);

-- name: complaining_jobs
-- Jobs with open rejections, of one import or of all of a dataset.
select job.id, job.import_id, job.shard_key, count(byte_offset) > 0 as is_of_file
from penstock_quarantine as bad
join penstock_job as job on job.id = bad.job_id
where bad.dataset = :dataset and resolved is null
    and (:import_id is null or bad.import_id = :import_id)
group by job.id;

-- name: find_rejections
select penstock_quarantine.*, penstock_job.shard_key
from penstock_quarantine
join penstock_job on penstock_job.id = penstock_quarantine.job_id
where penstock_quarantine.dataset = :dataset and resolved is null
    and penstock_quarantine.id > :after
order by penstock_quarantine.id
limit :limit;

-- name: latest_rejections
select penstock_quarantine.*, penstock_job.shard_key
from penstock_quarantine
join penstock_job on penstock_job.id = penstock_quarantine.job_id
where penstock_quarantine.dataset = :dataset and resolved is null
    and (:before is null or penstock_quarantine.id < :before)
order by penstock_quarantine.id desc
limit :limit;

-- name: last_rejections
-- Of one job, in the order of its file, the last first.
select penstock_quarantine.*, penstock_job.shard_key
from penstock_quarantine
join penstock_job on penstock_job.id = penstock_quarantine.job_id
where job_id = :job and resolved is null
    and (:page is null or (penstock_quarantine.page_seq, position) < (:page, :position))
order by penstock_quarantine.page_seq desc, position desc
limit :limit;

-- name: resolve_rejection
update penstock_quarantine set resolved = :resolved where id = :id and resolved is null;

-- name: explain_rejection
update penstock_quarantine
set field = :field, reason = :reason, detail = :detail
where id = :id and resolved is null;

-- name: import_rejections
-- As many rows as fit into so many bytes, but at least one.
with bad as (
    select penstock_quarantine.id, length(raw) as size
    from penstock_quarantine
    where penstock_quarantine.import_id = :import_id and penstock_quarantine.id > :after
    order by penstock_quarantine.id
    limit :limit
),
sized as (
    select id, row_number() over (order by id) as number,
        sum(size) over (order by id) as bytes
    from bad
)
select penstock_quarantine.*, penstock_job.shard_key
from sized
join penstock_quarantine on penstock_quarantine.id = sized.id
join penstock_job on penstock_job.id = penstock_quarantine.job_id
where bytes <= :bytes or number = 1
order by penstock_quarantine.id;

-- name: count_rejections
select reason, field, count(*) as counted from penstock_quarantine
where import_id = :import_id
group by reason, field
order by counted desc, reason, coalesce(field, '');

-- name: open_reasons
select reason, field, count(*) as counted, max(id) as last_id from penstock_quarantine
where dataset = :dataset and resolved is null
group by reason, field
order by counted desc, reason, coalesce(field, '')
limit :limit;

-- name: discard_rows
update penstock_quarantine set resolved = 'discarded'
where dataset = :dataset and resolved is null and id <= :until
    and id in (select value from json_each(:ids));

-- name: discard_reason
update penstock_quarantine set resolved = 'discarded'
where resolved is null and id in (
    select id from penstock_quarantine
    where dataset = :dataset and resolved is null and id <= :until
        and reason = :reason and field is :field
    order by id
    limit :limit
);

-- name: last_done_import
select *, change_seq = (
    select change_seq from penstock_dataset where name = :dataset
) as is_latest
from penstock_import
where dataset = :dataset and mode = :mode and status = 'done'
order by id desc
limit 1;

-- name: planned_shards
select shard_key from penstock_job
where import_id = :import_id and kind = 'shard' and parent is null
order by id;

-- name: repeat_jobs
insert into penstock_job
    (import_id, dataset, shard_key, region, status, run_at, seen, unchanged,
    quarantined, dropped, duplicates, proof, created_at, finished_at)
select :import_id, dataset, shard_key, region, 'done', :now, seen,
    inserted + updated + unchanged, quarantined, dropped, duplicates, :proof, :now,
    :now
from penstock_job
where import_id = :of and kind = 'shard'
order by id;

-- name: repeat_counts
update penstock_import
set (seen, unchanged, quarantined, dropped, duplicates) = (
    select sum(seen), sum(unchanged), sum(quarantined), sum(dropped), sum(duplicates)
    from penstock_job
    where import_id = :import_id
)
where id = :import_id;

-- name: import_that_read
-- An import of unchanged files reads nothing: its bad rows belong to an earlier one.
select earlier.id from penstock_import as earlier
join penstock_import as mine
    on mine.dataset = earlier.dataset and mine.mode = earlier.mode
where mine.id = :import_id and earlier.id <= mine.id
    and (earlier.id = mine.id or earlier.status = 'done')
    and not exists (
        select 1 from penstock_job
        where import_id = earlier.id and status = 'done' and proof = 'unchanged'
    )
order by earlier.id desc
limit 1;

-- name: accept_rejection
-- Of a rejection that was resolved in the same transaction.
update penstock_quarantine set resolved = 'accepted' where id = :id;

-- name: renew_rejections
-- So that the row just stored does not count as written after these rejections.
update penstock_quarantine set at = :now
where dataset = :dataset and import_id = :import_id and resolved is null
    and key = :key;

-- name: publish_dataset
-- Invalidates cached responses.
update penstock_dataset
set generation = generation + 1, generation_tag = random() & 0xffffffffffff
where name = :dataset;

-- name: dataset_states
select name, generation, generation_tag, change_seq, change_tag, watermark,
    fields = '{}' as is_dropped
from penstock_dataset;

-- name: dataset_state
select generation, generation_tag, change_seq, change_tag, watermark
from penstock_dataset
where name = :dataset;

-- name: has_change
-- The last change is known even if all rows of changes were deleted, and a change
-- without a row is known from the row that follows it.
select exists (
    select 1 from penstock_dataset
    where name = :dataset and change_seq = :seq and change_tag = :tag
) or exists (
    select 1 from (
        select seq, tag, previous_tag from penstock_change
        where dataset = :dataset and seq >= :seq
        order by seq
        limit 1
    ) as change
    where (seq = :seq and tag = :tag)
        or (seq = :seq + 1 and coalesce(previous_tag, tag) = :tag)
) as is_known;
