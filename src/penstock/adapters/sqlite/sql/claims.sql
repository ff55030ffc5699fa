-- The claims of jobs, which a trigger adds when they end.

-- name: find_claims
-- Each half reads an index; there are as many leased jobs as threads of workers.
select claim.*, penstock_job.shard_key
from (
    select * from (
        select job_id, fence, owner, claimed_at, ended_at, outcome, code
        from penstock_claim
        where import_id = :import_id and (claimed_at, job_id, fence) > (coalesce(:at, 0), :job, :fence)
        order by claimed_at, job_id, fence
        limit :limit
    ) as ended
    union all
    select id, fence, lease_owner, claimed_at, null, null, null
    from penstock_job
    where import_id = :import_id and status = 'leased'
        and (claimed_at, id, fence) > (coalesce(:at, 0), :job, :fence)
) as claim
join penstock_job on penstock_job.id = claim.job_id
order by claim.claimed_at, claim.job_id, claim.fence
limit :limit;

-- name: claims_of_job
-- Reads the part of its import's index since the job was planned, and of the table only
-- the claims of that job.
select job.id as job_id, claim.fence, claim.owner, claim.claimed_at, claim.ended_at,
    claim.outcome, claim.code, job.shard_key
from penstock_job as job
join penstock_claim as claim
    on claim.import_id = job.import_id and claim.claimed_at >= job.created_at
    and claim.job_id = job.id
where job.id = :job
union all
select id, fence, lease_owner, claimed_at, null, null, null, shard_key
from penstock_job
where id = :job and status = 'leased' and claimed_at is not null
order by claimed_at desc, fence desc
limit :limit;

-- name: claim_window
-- Reads the end of an index, and the leased jobs, of which there are few.
select min(claimed_at) filter (where began_at is null or claimed_at >= began_at)
    as began_at,
    max(ended_at) as ended_at,
    count(ended_at) as ended,
    count(*) - count(ended_at) as running,
    count(distinct owner) as workers
from (
    select *, min(case when ended_at is not null then claimed_at end) over () as began_at
    from (
        select * from (
            select owner, claimed_at, ended_at from penstock_claim
            where import_id = :import_id
                and (:before is null or claimed_at < :before)
            order by claimed_at desc, job_id desc, fence desc
            limit :most
        ) as ended
        union all
        select lease_owner, claimed_at, null from penstock_job
        where import_id = :import_id and status = 'leased'
            and claimed_at is not null
            and (:before is null or claimed_at < :before)
    ) as claim
) as claim;

-- name: claims_within
select claim.*, penstock_job.shard_key
from (
    select * from (
        select job_id, fence, owner, claimed_at, ended_at, outcome, code
        from penstock_claim
        where import_id = :import_id
            and claimed_at >= :began_at and claimed_at < :before
        order by claimed_at, job_id, fence
        limit :limit
    ) as ended
    union all
    select id, fence, lease_owner, claimed_at, null, null, null
    from penstock_job
    where import_id = :import_id and status = 'leased' and claimed_at < :before
) as claim
join penstock_job on penstock_job.id = claim.job_id
order by claim.claimed_at, claim.job_id, claim.fence;

-- name: claim_bundles
select owner, bucket, outcome,
    count(*) as claims,
    min(claimed_at) as first_claimed_at,
    max(ended_at) as last_ended_at,
    coalesce(sum(max(ended_at - claimed_at, 0)), 0) as busy
from (
    select owner, outcome, claimed_at, ended_at,
        max(claimed_at - :began_at, 0) * :buckets / :length as bucket
    from (
        select owner, outcome, claimed_at, ended_at from penstock_claim
        where import_id = :import_id
            and claimed_at >= :began_at and claimed_at < :before
        union all
        select lease_owner, null, claimed_at, null from penstock_job
        where import_id = :import_id and status = 'leased'
            and claimed_at < :before
    ) as claim
) as claim
group by owner, bucket, outcome
order by owner, bucket, outcome;

-- name: forget_claims
-- The oldest were added first, so this reads no more rows than it may delete.
delete from penstock_claim
where id in (
    select id from penstock_claim order by id limit :most
) and ended_at < :now - :ended;

-- name: drop_claims
delete from penstock_claim
where id in (
    select id from penstock_claim where import_id = :import_id limit :limit
);
