-- The running worker processes.

-- name: announce_worker
insert into penstock_worker (id, region, declarations, host, pid, version, threads,
    started_at, seen_at, last_claim_at, until)
values (:worker, :region, :declarations, :host, :pid,
    :version, :threads, :now, :now, :now - :idle,
    :now + :lasting)
on conflict (id) do update
set region = excluded.region, declarations = excluded.declarations,
    seen_at = excluded.seen_at, until = excluded.until,
    last_claim_at = coalesce(excluded.last_claim_at, penstock_worker.last_claim_at);

-- name: remove_worker
update penstock_worker set until = :now - 1
where id = :worker and until >= :now;

-- name: forget_departed_workers
delete from penstock_worker where until < :now - :retention;

-- name: departed_workers
select id, region, declarations, seen_at, until from penstock_worker
where until < :now;

-- name: live_workers
select id, region, declarations, host, pid, version, threads, started_at, seen_at,
    last_claim_at, coalesce(jobs, 0) as jobs
from penstock_worker
left join (
    select lease_owner, count(*) as jobs from penstock_job
    where status = 'leased'
    group by lease_owner
) as held on held.lease_owner = penstock_worker.id
where until >= :now
order by id;

-- name: open_work
select id, dataset, region,
    (
        select count(*) from (
            select 1 from penstock_job
            where import_id = penstock_import.id and status = 'pending'
                and run_at <= :now
            limit :most
        ) as counted
    ) as due,
    (
        select min(run_at) from penstock_job
        where import_id = penstock_import.id and status = 'pending' and run_at <= :now
    ) as oldest_at,
    (
        select count(*) from penstock_job
        where import_id = penstock_import.id and status = 'leased'
    ) as leased
from penstock_import
where status = 'running' and status in ('planning', 'running')
order by id;

-- name: page_gaps
-- Between the latest pages of a few jobs that are worked now.
select committed_at - previous as gap
from (
    select committed_at,
        lag(committed_at) over (partition by job_id order by penstock_page.page_seq)
            as previous
    from penstock_page
    join (
        select id, page_seq from penstock_job
        where import_id = :import_id and status = 'leased'
        order by lease_until
        limit 20
    ) as worked
        on worked.id = job_id and penstock_page.page_seq > worked.page_seq - 10
) as pages
where previous is not null;
