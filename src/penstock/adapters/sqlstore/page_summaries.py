"""Encode and decode the summary of a page for the ledger."""

import json

from penstock.adapters.sqlstore.key_encoding import encode_key_text
from penstock.domain.pages import PageSummary, Proof

# positions in an encoded summary
SEEN, DROPPED, CURSOR, PROOF, RECORDS, FIRST, LAST, DIGEST = range(8)


def encode_summary(summary: PageSummary | None) -> str | None:
    if summary is None:
        return None
    return encode_key_text(
        [
            *(summary.seen, summary.dropped, summary.cursor, summary.proof),
            *(summary.records, summary.first, summary.last, summary.digest.hex()),
        ]
    )


def decode_summary(text: str) -> PageSummary:
    """Decode a summary; its keys keep the form that they have in the ledger."""
    seen, dropped, cursor, proof, records, first, last, digest = json.loads(text)
    return PageSummary(
        seen=seen,
        dropped=dropped,
        cursor=cursor,
        proof=None if proof is None else Proof(proof),
        records=records,
        first=tuple(first),
        last=tuple(last),
        digest=bytes.fromhex(digest),
    )
