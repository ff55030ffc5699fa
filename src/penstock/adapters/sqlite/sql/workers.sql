-- The live worker processes.

-- name: announce_worker
insert into penstock_worker (id, region, declarations, started_at, until)
values (:worker, :region, :declarations, :now, :now + :lasting)
on conflict (id) do update
set region = excluded.region, declarations = excluded.declarations,
    until = excluded.until;

-- name: remove_worker
delete from penstock_worker where id = :worker;

-- name: remove_lost_workers
delete from penstock_worker where until < :now;

-- name: live_workers
select id, region, declarations, started_at from penstock_worker
where until >= :now
order by id;
