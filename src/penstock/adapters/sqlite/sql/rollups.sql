-- What happened per minute: the samples of processes, and their sums.

-- name: add_samples
insert into penstock_sample (process, flush, minute, kind, name, series, value)
select :process, :number, :now - :now % 60000000, value ->> 'kind', value ->> 'name',
    value ->> 'series', value ->> 'value'
from json_each(:samples)
where true
on conflict (process, flush, kind, name, series) do nothing;

-- name: take_samples
-- Whoever deletes a sample adds it to the sums, in the same transaction.
delete from penstock_sample
where (process, flush, kind, name, series) in (
    select process, flush, kind, name, series from penstock_sample
    where minute <= :now - :finished
    order by minute
    limit :most
)
returning minute, kind, name, series, value;

-- name: take_minutes
-- Sums of minutes that do not begin an hour, to be added to the one that does.
delete from penstock_rollup
where (kind, name, minute, series) in (
    select kind, name, minute, series from penstock_rollup
    where minute < :now - :age - (:now - :age) % 3600000000 and minute % 3600000000 > 0
    limit :most
)
returning minute, kind, name, series, value;

-- name: add_rollups
insert into penstock_rollup (minute, kind, name, series, value)
select value ->> 'minute', value ->> 'kind', value ->> 'name', value ->> 'series',
    value ->> 'value'
from json_each(:sums)
where true
on conflict (kind, name, minute, series)
do update set value = penstock_rollup.value + excluded.value;

-- name: read_rollups
-- One statement, so that a sample that is folded meanwhile counts once.
select series, (minute - :since) / :bucket_length as bucket, sum(value) as total
from (
    select series, minute, value from penstock_rollup
    where kind = :kind and name = :name and minute >= :since and minute < :until
    union all
    select series, minute, value from penstock_sample
    where kind = :kind and name = :name and minute >= :since and minute < :until
) as found
group by series, bucket;

-- name: count_old_rollups
select count(*) as counted from penstock_rollup where minute < :now - :age;

-- name: forget_rollups
delete from penstock_rollup
where (kind, name, minute, series) in (
    select kind, name, minute, series from penstock_rollup
    where minute < :now - :age
    order by minute
    limit :most
);
