"""Recognise a page that was imported before, without parsing it.

The outcome of a page depends on the declaration, the shard, the cursor before it, the
response and the code that reads it. A digest of these is its fingerprint (column
`imprint`), under which a summary of the outcome is stored (column `memo`). The database
checks whether the rows are still stored as the summary says.
"""

import json
from collections.abc import Iterable
from datetime import datetime
from hashlib import sha256

from penstock import __version__
from penstock.domain.dataset import Dataset
from penstock.domain.jobs import Lease
from penstock.domain.mapping.columnar import ColumnarRecords
from penstock.domain.pages import Batch, Page, PageSummary

FINGERPRINT_BYTES = 16

# Raised by every change of how input is read, converted or proven to be complete: what
# was wrongly read must be read again, even if neither it nor the version has changed.
READER_EDITION = 9


def reader_edition() -> str:
    """Name the code that reads input; results of other code are never reused."""
    return f"{__version__}/{READER_EDITION}"


def can_reuse_pages(dataset: Dataset, lease: Lease) -> bool:
    """Return whether pages of this job may be recognised by their content.

    The code of a transform may have changed, and so may the rows that a field refers
    to. A tracked page must mark each of its rows. Which rows are outside of a delta
    depends on its lower bound.
    """
    is_self_contained = dataset.transform is None and not dataset.has_references
    return is_self_contained and not lease.tracked and lease.since is None


def page_fingerprint(lease: Lease, content: bytes) -> bytes:
    """Digest everything that the outcome of a page depends on."""
    position = json.dumps([lease.shard_key, lease.cursor]).encode()
    return sha256(position + content).digest()[:FINGERPRINT_BYTES]


def summarize_page(page: Page, batch: Batch) -> PageSummary | None:
    """Return the summary of a page, or None if it cannot be reused.

    Reusable pages have no rejections, no duplicates, and a next position that depends
    on them alone.
    """
    if batch.rejections or batch.repeated_keys or not batch.records:
        return None
    if page.proof is None and not page.rises:
        # its cursor contains the loop detector, which depends on earlier pages
        return None
    records = ColumnarRecords.of(batch.records).by_key()
    return PageSummary(
        seen=batch.seen,
        dropped=batch.dropped,
        cursor=batch.cursor,
        proof=batch.proof,
        records=len(records),
        first=records.keys[0],
        last=records.keys[-1],
        digest=combine_digests(records.digests),
    )


def combine_digests(digests: Iterable[bytes]) -> bytes:
    """Digest the digests of records in key order, as the databases do it, too."""
    return sha256(b"".join(digests)).digest()


def build_repeat_batch(
    memo: PageSummary, imprint: bytes, *, provider_time: datetime | None
) -> Batch:
    """Return the batch that commits a recognised page: it writes no record."""
    return Batch(
        records=(),
        seen=memo.seen,
        dropped=memo.dropped,
        cursor=memo.cursor,
        proof=memo.proof,
        provider_time=provider_time,
        imprint=imprint,
        memo=memo,
    )
