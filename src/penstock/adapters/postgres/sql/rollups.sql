-- What happened per minute: the samples of processes, and their sums.

-- name: add_samples
insert into penstock_sample (process, flush, minute, kind, name, series, value)
select %(process)s, %(number)s, date_trunc('minute', {now}), kind, name, series, value
from jsonb_to_recordset(%(samples)s::jsonb)
    as added (kind text, name text, series text, value bigint)
on conflict (process, flush, kind, name, series) do nothing;

-- name: take_samples
-- Whoever deletes a sample adds it to the sums, in the same transaction.
delete from penstock_sample
where ctid = any(array(
    select ctid from penstock_sample
    where minute <= {now} - %(finished)s * interval '1 microsecond'
    order by minute
    limit %(most)s
    for update skip locked
))
returning (extract(epoch from minute) * 1000000)::bigint as minute,
    kind, name, series, value;

-- name: take_minutes
-- Sums of minutes that do not begin an hour, to be added to the one that does.
delete from penstock_rollup
where ctid = any(array(
    select ctid from penstock_rollup
    where minute < date_trunc('hour', {now} - %(age)s * interval '1 microsecond', 'UTC')
        and minute > date_trunc('hour', minute, 'UTC')
    limit %(most)s
    for update skip locked
))
returning (extract(epoch from minute) * 1000000)::bigint as minute,
    kind, name, series, value;

-- name: add_rollups
insert into penstock_rollup (minute, kind, name, series, value)
select to_timestamp(minute / 1000000), kind, name, series, value
from jsonb_to_recordset(%(sums)s::jsonb)
    as added (minute bigint, kind text, name text, series text, value bigint)
on conflict (kind, name, minute, series)
do update set value = penstock_rollup.value + excluded.value;

-- name: read_rollups
-- One statement, so that a sample that is folded meanwhile counts once.
select series,
    floor(extract(epoch from minute - %(since)s::timestamptz) * 1000000
        / %(bucket_length)s)::int as bucket,
    sum(value)::bigint as total
from (
    select series, minute, value from penstock_rollup
    where kind = %(kind)s and name = %(name)s
        and minute >= %(since)s::timestamptz and minute < %(until)s::timestamptz
    union all
    select series, minute, value from penstock_sample
    where kind = %(kind)s and name = %(name)s
        and minute >= %(since)s::timestamptz and minute < %(until)s::timestamptz
) as found
group by series, bucket;

-- name: count_old_rollups
select count(*) as counted from penstock_rollup
where minute < {now} - %(age)s * interval '1 microsecond';

-- name: forget_rollups
delete from penstock_rollup
where ctid = any(array(
    select ctid from penstock_rollup
    where minute < {now} - %(age)s * interval '1 microsecond'
    order by minute
    limit %(most)s
    for update skip locked
));
