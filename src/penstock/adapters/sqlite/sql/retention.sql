-- Removal of old entries of the ledger.

-- name: shown_at
select shown_at from penstock_retention;

-- name: note_shown
insert into penstock_retention (id, shown_at) values (1, :now)
on conflict (id) do nothing;

-- name: ended_imports
-- The newest first: an import of unchanged files is removed before the one it repeats.
select ended.*, (
        select shard_key from penstock_job where import_id = ended.id limit 1
    ) as shard_key, (
        select proof from penstock_job where import_id = ended.id limit 1
    ) as proof, (
        select proof from penstock_job where import_id = next_done limit 1
    ) as next_proof, exists (
        select 1 from penstock_quarantine where import_id = ended.id
    ) as has_bad_rows
from (
    select id, dataset, mode, status, finished_at, (
            select min(id) from penstock_import as later
            where later.dataset = old.dataset and later.mode = old.mode
                and later.status = 'done' and later.id > old.id
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
        select shard_key from penstock_job where import_id = ended.id limit 1
    ) as shard_key, (
        select proof from penstock_job where import_id = ended.id limit 1
    ) as proof, (
        select proof from penstock_job where import_id = next_done limit 1
    ) as next_proof, exists (
        select 1 from penstock_quarantine where import_id = ended.id
    ) as has_bad_rows
from (
    select id, dataset, mode, status, finished_at, (
            select min(id) from penstock_import as later
            where later.dataset = old.dataset and later.mode = old.mode
                and later.status = 'done' and later.id > old.id
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
