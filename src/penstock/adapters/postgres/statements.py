"""The named statements, with the phrases that many of them share filled in."""

from collections.abc import Mapping

from penstock.adapters.sql.statements import load

# the time at which a statement began: leases are judged by it, and it can use an index
NOW = "statement_timestamp()"
# the time at this very moment, also after waiting for a lock
CLOCK = "clock_timestamp()"
# 48 random bits: no number of a change or of a generation gets the same ones twice
TAG = """('x' || right(gen_random_uuid()::text, 12))::bit(48)::bigint"""

WORKABLE = """running.status = 'running'
    and exists (
        select 1 from jsonb_each_text(%(declarations)s::jsonb) as declared
        where declared.key = running.dataset and declared.value = running.declaration
    )
    and (%(region)s::text is null or running.region is null
        or running.region = %(region)s)"""

# what a page does to its job, as far as the row `come` tells, and what it adds to the
# counts of its job and of its import
MOVED_ON = """page_seq = page_seq + 1,
    cursor = come.cursor,
    status = case when come.proof is null then 'leased' else 'done' end,
    proof = come.proof,
    lease_owner = case when come.proof is null then lease_owner end,
    lease_until = case
        when come.proof is null then {now} + %(lease)s * interval '1 microsecond' end,
    finished_at = case when come.proof is null then null else {now} end,
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
ADDED_TO_IMPORT = """pages = kept.pages + excluded.pages,
    requests = kept.requests + excluded.requests,
    seen = kept.seen + excluded.seen,
    inserted = kept.inserted + excluded.inserted,
    updated = kept.updated + excluded.updated,
    unchanged = kept.unchanged + excluded.unchanged,
    quarantined = kept.quarantined + excluded.quarantined,
    dropped = kept.dropped + excluded.dropped,
    duplicates = kept.duplicates + excluded.duplicates,
    scan_started_at = least(kept.scan_started_at, excluded.scan_started_at)"""

KEPT_ERRORS = """(case when jsonb_array_length(errors) >= %(errors_kept)s
        then errors - 0 else errors end)"""


def statements(*, now: str = NOW, clock: str = CLOCK) -> Mapping[str, str]:
    """Load the statements; a test may bring its own expressions for the time."""
    microseconds = f"(extract(epoch from {now}) * 1000000)::bigint"
    phrases = {
        "{moved_on}": MOVED_ON,
        "{added_to_job}": ADDED_TO_JOB,
        "{added_to_import}": ADDED_TO_IMPORT,
        "{now}": now,
        "{clock}": clock,
        "{tag}": TAG,
        "{now_in_microseconds}": microseconds,
        "{clock_in_microseconds}": f"(extract(epoch from {clock}) * 1000000)::bigint",
        "{workable}": WORKABLE,
        "{kept_errors}": KEPT_ERRORS,
        "{fault}": f"""jsonb_build_object(
        'at', {microseconds}, 'owner', lease_owner, 'fence', fence,
        'code', %(code)s::text, 'message', %(message)s::text, 'cursor', cursor
    )""",
    }
    return {
        name: filled(text, phrases)
        for name, text in load("penstock.adapters.postgres").items()
    }


def filled(text: str, phrases: Mapping[str, str]) -> str:
    for phrase, meaning in phrases.items():
        text = text.replace(phrase, meaning)
    return text
