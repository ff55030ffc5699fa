-- The running worker processes.

-- name: announce_worker
insert into penstock_worker (id, region, declarations, started_at, until)
values (%(worker)s, %(region)s, %(declarations)s, {now},
    {now} + %(lasting)s * interval '1 microsecond')
on conflict (id) do update
set region = excluded.region, declarations = excluded.declarations,
    until = excluded.until;

-- name: remove_worker
delete from penstock_worker where id = %(worker)s;

-- name: remove_lost_workers
delete from penstock_worker where until < {now};

-- name: live_workers
select id, region, declarations::text as declarations, started_at from penstock_worker
where until >= {now}
order by id;
