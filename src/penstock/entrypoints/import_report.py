"""An import as a JSON document, the same in the CLI and the API."""

from penstock.domain.jobs import Import, Shards
from penstock.domain.pages import Counts
from penstock.domain.waiting import Waiting


def records_of(counts: Counts) -> dict[str, int]:
    return {
        "seen": counts.seen,
        "inserted": counts.inserted,
        "updated": counts.updated,
        "unchanged": counts.unchanged,
        "deleted": counts.deleted,
        "quarantined": counts.quarantined,
        "dropped": counts.dropped,
        "duplicates": counts.duplicates,
    }


def waiting_document(waiting: Waiting | None) -> dict[str, object] | None:
    if waiting is None:
        return None
    return {
        "reason": waiting.reason.value,
        "since": waiting.since,
        "until": waiting.until,
        "detail": waiting.detail,
    }


def report(
    import_: Import, shards: Shards, waiting: Waiting | None = None
) -> dict[str, object]:
    """Describe an import as `run --json` and `imports --json` print it."""
    end = import_.finished_at
    return {
        "import_id": import_.id,
        "dataset": import_.dataset,
        "mode": import_.mode.value,
        "status": import_.status.value,
        "shards": {
            "total": shards.total,
            "done": shards.done,
            "failed": shards.failed,
            "split": shards.split,
            "pending": shards.pending,
            "leased": shards.leased,
            "cancelled": shards.cancelled,
        },
        "pages": import_.counts.pages,
        "requests": import_.counts.requests,
        "records": records_of(import_.counts),
        "rescues": import_.rescues,
        "seconds": None
        if end is None
        else round((end - import_.created_at).total_seconds(), 3),
        "proven": import_.proven,
        "note": import_.note,
        "waiting": waiting_document(waiting),
        "since": import_.since,
        "until": import_.until,
        "created_at": import_.created_at,
        "finished_at": end,
    }
