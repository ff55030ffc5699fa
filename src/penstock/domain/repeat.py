"""Recognise a page that comes again, before it is read.

What a page becomes is decided by the declaration, the shard, the cursor before it and
the answer. A digest of these four is its imprint. The memo that is kept under it tells
what the page brought; whether the rows are still stored so, the database says.
"""

import json
from collections.abc import Iterable
from datetime import datetime
from hashlib import sha256

from penstock.domain.dataset import Dataset
from penstock.domain.job import Lease
from penstock.domain.page import Batch, Memo, Page
from penstock.domain.sheet import Sheet

IMPRINT_BYTES = 16


def is_recallable(dataset: Dataset, lease: Lease) -> bool:
    """Say whether a page of this job may be known by what it is.

    A transform is code that may have changed, and so may the rows that a field refers
    to. A page that is tracked must reach each of its rows. What lies outside of a delta
    depends on when it was asked for.
    """
    is_alone = dataset.transform is None and not dataset.has_references
    return is_alone and not lease.tracked and lease.since is None


def imprint_of(lease: Lease, content: bytes) -> bytes:
    """Digest all that decides about a page."""
    place = json.dumps([lease.shard_key, lease.cursor]).encode()
    return sha256(place + content).digest()[:IMPRINT_BYTES]


def memo_of(page: Page, batch: Batch) -> Memo | None:
    """Note what a page brought, if it was good, and tells by itself what follows."""
    if batch.rejections or not batch.records:
        return None
    if page.proof is None and not page.rises:
        # its cursor holds the trail of the shard
        return None
    sheet = Sheet.of(batch.records).by_key()
    return Memo(
        seen=batch.seen,
        dropped=batch.dropped,
        cursor=batch.cursor,
        proof=batch.proof,
        records=len(sheet),
        first=sheet.keys[0],
        last=sheet.keys[-1],
        digest=digest_of_all(sheet.digests),
    )


def digest_of_all(digests: Iterable[bytes]) -> bytes:
    """Digest the digests of records in the order of their keys.

    By the function that databases have, too.
    """
    return sha256(b"".join(digests)).digest()


def batch_again(memo: Memo, imprint: bytes, *, provider_time: datetime | None) -> Batch:
    """Return what committing a known page writes: no record."""
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
