-- The running worker processes.

-- name: announce_worker
insert into penstock_worker (id, region, declarations, host, pid, version, threads,
    started_at, seen_at, last_claim_at, until)
values (%(worker)s, %(region)s, %(declarations)s, %(host)s, %(pid)s,
    %(version)s, %(threads)s, {now}, {now}, {now} - %(idle)s::bigint * interval '1 microsecond',
    {now} + %(lasting)s::bigint * interval '1 microsecond')
on conflict (id) do update
set region = excluded.region, declarations = excluded.declarations,
    seen_at = excluded.seen_at, until = excluded.until,
    last_claim_at = coalesce(excluded.last_claim_at, penstock_worker.last_claim_at);

-- name: remove_worker
update penstock_worker set until = {now} - interval '1 microsecond'
where id = %(worker)s and until >= {now};

-- name: forget_departed_workers
delete from penstock_worker where until < {now} - %(retention)s::bigint * interval '1 microsecond';

-- name: departed_workers
select id, region, declarations::text as declarations, seen_at, until from penstock_worker
where until < {now};

-- name: live_workers
select id, region, declarations::text as declarations, host, pid, version, threads, started_at, seen_at,
    last_claim_at, coalesce(jobs, 0) as jobs
from penstock_worker
left join (
    select lease_owner, count(*) as jobs from penstock_job
    where status = 'leased'
    group by lease_owner
) as held on held.lease_owner = penstock_worker.id
where until >= {now}
order by id;
