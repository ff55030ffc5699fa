"""The named statements, with the fragments that many of them share."""

from collections.abc import Mapping

from penstock.adapters.sqlstore.sql_loader import load_statements

# the start of the statement: constant, so that conditions on it can use an index
NOW = "statement_timestamp()"
# the current time, also after waiting for a lock
CLOCK = "clock_timestamp()"
# 48 random bits, which tell histories with the same change numbers apart
TAG = """('x' || right(gen_random_uuid()::text, 12))::bit(48)::bigint"""

CLAIMABLE = """running.status = 'running'
    and exists (
        select 1 from jsonb_each_text(%(declarations)s::jsonb) as declared
        where declared.key = running.dataset and declared.value = running.declaration
    )
    and (%(region)s::text is null or running.region is null
        or running.region = %(region)s)"""

# how a page (the row `page`) advances its job, and what it adds to the counts of its
# job and of its import
ADVANCED_JOB = """page_seq = page_seq + 1,
    cursor = page.cursor,
    status = case when page.proof is null then 'leased' else 'done' end,
    proof = page.proof,
    lease_owner = case when page.proof is null then lease_owner end,
    lease_until = case
        when page.proof is null then {now} + %(lease)s * interval '1 microsecond' end,
    finished_at = case when page.proof is null then null else {now} end,
    attempts = 0,
    rescues = 0,
    snoozes = 0"""
ADDED_TO_JOB = """requests = requests + %(requests)s,
    seen = seen + %(seen)s,
    inserted = inserted + %(inserted)s,
    updated = updated + %(updated)s,
    unchanged = unchanged + %(unchanged)s,
    quarantined = quarantined + %(quarantined)s,
    dropped = dropped + %(dropped)s,
    duplicates = duplicates + %(duplicates)s"""
ADDED_TO_IMPORT = """pages = total.pages + excluded.pages,
    requests = total.requests + excluded.requests,
    seen = total.seen + excluded.seen,
    inserted = total.inserted + excluded.inserted,
    updated = total.updated + excluded.updated,
    unchanged = total.unchanged + excluded.unchanged,
    quarantined = total.quarantined + excluded.quarantined,
    dropped = total.dropped + excluded.dropped,
    duplicates = total.duplicates + excluded.duplicates,
    scan_started_at = least(total.scan_started_at, excluded.scan_started_at)"""

# how a claim changes a job, whose expired lease counts as an error
CLAIMED_JOB = """status = 'leased',
    fence = fence + 1,
    lease_owner = %(owner)s,
    claimed_at = {now},
    lease_until = {now} + %(lease)s * interval '1 microsecond',
    rescues = rescues + (status = 'leased')::integer,
    errors = case when status = 'pending' then errors else {recent_errors}
        || jsonb_build_array(jsonb_build_object(
            'at', {now_in_microseconds}, 'owner', lease_owner, 'fence', fence,
            'code', 'lease_lost', 'message', 'the lease expired',
            'cursor', cursor
        )) end"""

RECENT_ERRORS = """(case when jsonb_array_length(errors) >= %(max_errors)s
        then errors - 0 else errors end)"""


def statements(*, now: str = NOW, clock: str = CLOCK) -> Mapping[str, str]:
    """Load the statements; a test may pass its own expressions for the time."""
    microseconds = f"(extract(epoch from {now}) * 1000000)::bigint"
    fragments = {
        "{claimed_job}": CLAIMED_JOB,
        "{advanced_job}": ADVANCED_JOB,
        "{added_to_job}": ADDED_TO_JOB,
        "{added_to_import}": ADDED_TO_IMPORT,
        "{now}": now,
        "{clock}": clock,
        "{tag}": TAG,
        "{now_in_microseconds}": microseconds,
        "{clock_in_microseconds}": f"(extract(epoch from {clock}) * 1000000)::bigint",
        "{claimable}": CLAIMABLE,
        "{recent_errors}": RECENT_ERRORS,
        "{fault}": f"""jsonb_build_object(
        'at', {microseconds}, 'owner', lease_owner, 'fence', fence,
        'code', %(code)s::text, 'message', %(message)s::text, 'cursor', cursor
    )""",
    }
    return {
        name: fill(text, fragments)
        for name, text in load_statements("penstock.adapters.postgres").items()
    }


def fill(text: str, fragments: Mapping[str, str]) -> str:
    for name, fragment in fragments.items():
        text = text.replace(name, fragment)
    return text
