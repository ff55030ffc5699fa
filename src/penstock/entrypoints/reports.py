"""An import as it is told, alike wherever one asks."""

from penstock.domain.job import Import, Shards
from penstock.domain.page import Counts
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
    known: Import, shards: Shards, waiting: Waiting | None = None
) -> dict[str, object]:
    """Describe an import as `run --json` and `imports --json` print it."""
    end = known.finished_at
    return {
        "import_id": known.id,
        "dataset": known.dataset,
        "mode": known.mode.value,
        "status": known.status.value,
        "shards": {
            "total": shards.total,
            "done": shards.done,
            "failed": shards.failed,
            "split": shards.split,
            "pending": shards.pending,
            "leased": shards.leased,
            "cancelled": shards.cancelled,
        },
        "pages": known.counts.pages,
        "requests": known.counts.requests,
        "records": records_of(known.counts),
        "rescues": known.rescues,
        "seconds": None
        if end is None
        else round((end - known.created_at).total_seconds(), 3),
        "proven": known.proven,
        "note": known.note,
        "waiting": waiting_document(waiting),
        "since": known.since,
        "until": known.until,
        "created_at": known.created_at,
        "finished_at": end,
    }
