-- Removal of old entries of the ledger.

-- name: shown_at
select shown_at from penstock_retention;

-- name: note_shown
insert into penstock_retention (id, shown_at) values (1, :now)
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
            and (resolved is null or at >= :now - :bad_rows)
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
        and (finished_at, id) < (coalesce(:finished_at, :now - :age), :before)
    order by finished_at desc, id desc
    limit :limit
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
            and (resolved is null or at >= :now - :bad_rows)
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
        and (finished_at, id) < (coalesce(:finished_at, :now - :age), :before)
    order by finished_at desc, id desc
    limit :limit
) as ended
order by finished_at desc, id desc;

-- name: measure_imports
select (
    select count(*) from penstock_job where import_id in (select value from json_each(:imports))
) as jobs, (
    select count(*) from penstock_page where job_id in (
        select id from penstock_job where import_id in (select value from json_each(:imports))
    )
) as pages;

-- name: note_pages_removed
update penstock_import set pages_removed = :state
where id = :import_id and pages_removed < :state;

-- name: detach_fires
update penstock_fire set import_id = null where import_id = :import_id;

-- name: all_names
select name from penstock_schedule order by name;

-- name: imports_of_fires
select import_id from (
    select id, import_id from penstock_fire
    where schedule = :schedule and outcome = 'started'
    order by id desc
    limit :retained
) as last_fires
where import_id is not null;

-- name: count_old_fires
select count(*) as counted from penstock_fire
where schedule = :schedule and decided_at < :now - :age and outcome <> 'waiting'
    and id < (
        select coalesce(
            (
                select min(id) from (
                    select id from penstock_fire
                    where schedule = :schedule and outcome = 'started'
                    order by id desc
                    limit :retained
                ) as last_fires
            ),
            (select max(id) from penstock_fire where schedule = :schedule)
        )
    );

-- name: remove_fires
-- The oldest were added first, so this reads no more of them than it may delete.
delete from penstock_fire
where id in (
    select id from penstock_fire where schedule = :schedule order by id limit :most
) and decided_at < :now - :age and outcome <> 'waiting' and id < (
        select coalesce(
            (
                select min(id) from (
                    select id from penstock_fire
                    where schedule = :schedule and outcome = 'started'
                    order by id desc
                    limit :retained
                ) as last_fires
            ),
            (select max(id) from penstock_fire where schedule = :schedule)
        )
    );

-- name: count_old_claims
select count(*) as counted from penstock_claim where ended_at < :now - :age;

-- name: datasets_with_changes
select name from penstock_dataset order by name;

-- name: count_old_changes
select coalesce(count(*), 0) as counted
from penstock_change
where dataset = :dataset and at < :now - :age
    and seq <= coalesce((
        select min(change_seq) from penstock_feeder where dataset = :dataset
    ), 9223372036854775807);

-- name: remove_changes
-- The oldest were added first, so this reads no more of them than it may delete; the
-- plus keeps the planner from reading the whole range instead.
delete from penstock_change
where dataset = :dataset and seq in (
    select seq from penstock_change
    where dataset = :dataset order by seq limit :most
) and at < :now - :age
    and +seq <= coalesce((
        select min(change_seq) from penstock_feeder where dataset = :dataset
    ), 9223372036854775807)
returning seq as first_seq, seq as last_seq;

-- name: forget_late_vocabulary
-- Changes that it needs are gone: the words are counted again.
delete from penstock_vocabulary
where dataset = :dataset and change_seq < :removed;

-- name: move_feeder
insert into penstock_feeder (name, dataset, change_seq, moved_at)
values (:name, :dataset, :change_seq, :now)
on conflict (name, dataset) do update
set change_seq = excluded.change_seq, moved_at = excluded.moved_at;

-- name: remove_feeder
delete from penstock_feeder where name = :name;

-- name: all_feeders
select name, dataset, change_seq, moved_at from penstock_feeder order by dataset, name;

-- name: old_bad_rows
-- Those of imports that may run again stay: what is known of their end depends on them.
select bad.id, bad.at, owner.status in ('done', 'cancelled') as is_removable
from penstock_quarantine as bad
join penstock_import as owner on owner.id = bad.import_id
where bad.resolved is not null
    and (bad.at, bad.id) > (coalesce(:at, 0), :after)
    and bad.at < :now - :age
order by bad.at, bad.id
limit :limit;

-- name: remove_bad_rows
delete from penstock_quarantine
where id in (select value from json_each(:ids))
    and resolved is not null;

-- name: count_old_bad_rows
select count(*) as counted
from penstock_quarantine as bad
join penstock_import as owner on owner.id = bad.import_id
where bad.resolved is not null and bad.at < :now - :age
    and owner.status in ('done', 'cancelled');
