"""How far the plan of an import is, so that another process can go on with it."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from hashlib import blake2b

from penstock.domain.sharding.axes import Axis, Bounds


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanCursor:
    # the only files to import, where not all of the dataset are
    files: tuple[str, ...] = ()
    # of the plan whose first shards are stored, and how many these are
    digest: str = ""
    stored: int = 0
    # of the trace that began the import, and that its pages continue
    traceparent: str | None = None

    def encode(self) -> str:
        # as it was before there were traces, unless it has one
        document = {
            name: value for name, value in asdict(self).items() if value is not None
        }
        return json.dumps(document, ensure_ascii=False)

    @classmethod
    def decode(cls, text: str | None) -> "PlanCursor":
        document = {} if text is None else json.loads(text)
        return cls(
            files=tuple(document.get("files", ())),
            digest=document.get("digest", ""),
            stored=document.get("stored", 0),
            traceparent=document.get("traceparent"),
        )


def traceparent_of(cursor: str | None) -> str | None:
    """Return the traceparent of a stored cursor; None in whatever else is stored."""
    document = None if cursor is None else json.loads(cursor)
    return document.get("traceparent") if isinstance(document, dict) else None


def digest_of_plan(axes: Sequence[Axis], bounds: Bounds) -> str:
    """Return the digest of a plan: equal ones have the same shards in the same order.

    The values of an axis may have been read from files or from another dataset, and
    differ when they are read again.
    """
    digest = blake2b(digest_size=16)
    for axis in axes:
        digest.update(f"{axis.name}:".encode())
        for part in axis.parts(bounds):
            digest.update(f"{part.text}|".encode())
    return digest.hexdigest()
