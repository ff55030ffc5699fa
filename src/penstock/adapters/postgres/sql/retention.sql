-- Removal of old entries of the ledger.

-- name: shown_at
select shown_at from penstock_retention;

-- name: note_shown
insert into penstock_retention (id, shown_at) values (1, {now})
on conflict (id) do nothing;

-- name: ended_imports
-- The newest first: an import of unchanged files is removed before the one it repeats.
-- Each subquery reads one entry of an index: the order and limits leave no other way.
select ended.*, (
        select shard_key from penstock_job
        where import_id = ended.id and kind = 'shard' limit 1
    ) as shard_key, (
        select proof from penstock_job
        where import_id = ended.id and kind = 'shard' limit 1
    ) as proof, (
        select proof from penstock_job
        where import_id = next_done and kind = 'shard' limit 1
    ) as next_proof, (
        select 1 from penstock_quarantine
        where import_id = ended.id
            and (resolved is null or at >= {now} - %(bad_rows)s * interval '1 microsecond')
        limit 1
    ) as has_bad_rows
from (
    select id, dataset, mode, status, finished_at, (
            select case when later.dataset = old.dataset and later.mode = old.mode
                then later.id end
            from penstock_import as later
            where later.status = 'done'
                and (later.dataset, later.mode, later.id)
                    > (old.dataset, old.mode, old.id)
            order by later.dataset, later.mode, later.id
            limit 1
        ) as next_done
    from penstock_import as old
    where status in ('done', 'cancelled')
        and (finished_at, id) < (
            coalesce(
                %(finished_at)s::timestamptz,
                {now} - %(age)s * interval '1 microsecond'
            ),
            %(before)s
        )
    order by finished_at desc, id desc
    limit %(limit)s
) as ended
order by finished_at desc, id desc;

-- name: imports_with_pages
select ended.*, (
        select shard_key from penstock_job
        where import_id = ended.id and kind = 'shard' limit 1
    ) as shard_key, (
        select proof from penstock_job
        where import_id = ended.id and kind = 'shard' limit 1
    ) as proof, (
        select proof from penstock_job
        where import_id = next_done and kind = 'shard' limit 1
    ) as next_proof, (
        select 1 from penstock_quarantine
        where import_id = ended.id
            and (resolved is null or at >= {now} - %(bad_rows)s * interval '1 microsecond')
        limit 1
    ) as has_bad_rows
from (
    select id, dataset, mode, status, finished_at, (
            select case when later.dataset = old.dataset and later.mode = old.mode
                then later.id end
            from penstock_import as later
            where later.status = 'done'
                and (later.dataset, later.mode, later.id)
                    > (old.dataset, old.mode, old.id)
            order by later.dataset, later.mode, later.id
            limit 1
        ) as next_done
    from penstock_import as old
    where status in ('done', 'cancelled') and pages_removed < 2
        and (finished_at, id) < (
            coalesce(
                %(finished_at)s::timestamptz,
                {now} - %(age)s * interval '1 microsecond'
            ),
            %(before)s
        )
    order by finished_at desc, id desc
    limit %(limit)s
) as ended
order by finished_at desc, id desc;

-- name: measure_imports
select (
    select count(*) from penstock_job where import_id in (select value::bigint from json_array_elements_text(%(imports)s::json))
) as jobs, (
    select count(*) from penstock_page where job_id in (
        select id from penstock_job where import_id in (select value::bigint from json_array_elements_text(%(imports)s::json))
    )
) as pages;

-- name: note_pages_removed
update penstock_import set pages_removed = %(state)s
where id = %(import_id)s and pages_removed < %(state)s;

-- name: detach_fires
update penstock_fire set import_id = null where import_id = %(import_id)s;

-- name: all_names
select name from penstock_schedule order by name;

-- name: imports_of_fires
select import_id from (
    select id, import_id from penstock_fire
    where schedule = %(schedule)s and outcome = 'started'
    order by id desc
    limit %(retained)s
) as last_fires
where import_id is not null;

-- name: count_old_fires
select count(*) as counted from penstock_fire
where schedule = %(schedule)s and decided_at < {now} - %(age)s * interval '1 microsecond'
    and outcome <> 'waiting'
    and id < (
        select coalesce(
            (
                select min(id) from (
                    select id from penstock_fire
                    where schedule = %(schedule)s and outcome = 'started'
                    order by id desc
                    limit %(retained)s
                ) as last_fires
            ),
            (select max(id) from penstock_fire where schedule = %(schedule)s)
        )
    );

-- name: remove_fires
-- The oldest were added first, so this reads no more of them than it may delete.
delete from penstock_fire
where id in (
    select id from penstock_fire where schedule = %(schedule)s order by id limit %(most)s
) and decided_at < {now} - %(age)s * interval '1 microsecond'
    and outcome <> 'waiting' and id < (
        select coalesce(
            (
                select min(id) from (
                    select id from penstock_fire
                    where schedule = %(schedule)s and outcome = 'started'
                    order by id desc
                    limit %(retained)s
                ) as last_fires
            ),
            (select max(id) from penstock_fire where schedule = %(schedule)s)
        )
    );

-- name: count_old_claims
select count(*) as counted from penstock_claim where ended_at < {now} - %(age)s * interval '1 microsecond';

-- name: datasets_with_changes
select name from penstock_dataset order by name;

-- name: count_old_changes
select coalesce(sum(last_seq - first_seq + 1), 0)::bigint as counted
from penstock_change_page
where dataset = %(dataset)s and at < {now} - %(age)s * interval '1 microsecond'
    and last_seq <= coalesce((
        select min(change_seq) from penstock_feeder where dataset = %(dataset)s
    ), 9223372036854775807);

-- name: remove_changes
-- The oldest were added first, so this reads no more of them than it may delete.
delete from penstock_change_page
where dataset = %(dataset)s and last_seq in (
    select last_seq from penstock_change_page
    where dataset = %(dataset)s order by last_seq limit %(most)s
) and at < {now} - %(age)s * interval '1 microsecond'
    and last_seq <= coalesce((
        select min(change_seq) from penstock_feeder where dataset = %(dataset)s
    ), 9223372036854775807)
returning first_seq, last_seq;

-- name: forget_late_vocabulary
-- Changes that it needs are gone: the words are counted again.
delete from penstock_vocabulary
where dataset = %(dataset)s and change_seq < %(removed)s;

-- name: move_feeder
insert into penstock_feeder (name, dataset, change_seq, moved_at)
values (%(name)s, %(dataset)s, %(change_seq)s, {now})
on conflict (name, dataset) do update
set change_seq = excluded.change_seq, moved_at = excluded.moved_at;

-- name: remove_feeder
delete from penstock_feeder where name = %(name)s;

-- name: all_feeders
select name, dataset, change_seq, moved_at from penstock_feeder order by dataset, name;

-- name: old_bad_rows
-- Those of imports that may run again stay: what is known of their end depends on them.
select bad.id, bad.at, owner.status in ('done', 'cancelled') as is_removable
from penstock_quarantine as bad
join penstock_import as owner on owner.id = bad.import_id
where bad.resolved is not null
    and (bad.at, bad.id) > (coalesce(%(at)s::timestamptz, '-infinity'), %(after)s)
    and bad.at < {now} - %(age)s * interval '1 microsecond'
order by bad.at, bad.id
limit %(limit)s;

-- name: remove_bad_rows
delete from penstock_quarantine
where id in (select value::bigint from json_array_elements_text(%(ids)s::json))
    and resolved is not null;

-- name: count_old_bad_rows
select count(*) as counted
from penstock_quarantine as bad
join penstock_import as owner on owner.id = bad.import_id
where bad.resolved is not null and bad.at < {now} - %(age)s * interval '1 microsecond'
    and owner.status in ('done', 'cancelled');
