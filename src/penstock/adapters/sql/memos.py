"""What is known of a page, as it stands in the ledger."""

import json

from penstock.adapters.sql.keys import key_text
from penstock.domain.page import Memo, Proof

# where in a memo each of them stands
SEEN, DROPPED, CURSOR, PROOF, RECORDS, FIRST, LAST, DIGEST = range(8)


def write_memo(memo: Memo | None) -> str | None:
    if memo is None:
        return None
    return key_text(
        [
            *(memo.seen, memo.dropped, memo.cursor, memo.proof),
            *(memo.records, memo.first, memo.last, memo.digest.hex()),
        ]
    )


def read_memo(text: str) -> Memo:
    """Read a memo; its keys are in the form that they have in the ledger."""
    seen, dropped, cursor, proof, records, first, last, digest = json.loads(text)
    return Memo(
        seen=seen,
        dropped=dropped,
        cursor=cursor,
        proof=None if proof is None else Proof(proof),
        records=records,
        first=tuple(first),
        last=tuple(last),
        digest=bytes.fromhex(digest),
    )
