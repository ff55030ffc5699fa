"""The named statements, with the phrases that many of them share filled in."""

from collections.abc import Mapping

from penstock.adapters.sql.statements import load

# the time at which a statement began: leases are judged by it, and it can use an index
NOW = "statement_timestamp()"
# the time at this very moment, also after waiting for a lock
CLOCK = "clock_timestamp()"

WORKABLE = """running.status = 'running'
    and exists (
        select 1 from jsonb_each_text(%(declarations)s::jsonb) as declared
        where declared.key = running.dataset and declared.value = running.declaration
    )
    and (%(region)s::text is null or running.region is null
        or running.region = %(region)s)"""

KEPT_ERRORS = """(case when jsonb_array_length(errors) >= %(errors_kept)s
        then errors - 0 else errors end)"""


def statements(*, now: str = NOW, clock: str = CLOCK) -> Mapping[str, str]:
    """Load the statements; a test may bring its own expressions for the time."""
    microseconds = f"(extract(epoch from {now}) * 1000000)::bigint"
    phrases = {
        "{now}": now,
        "{clock}": clock,
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
