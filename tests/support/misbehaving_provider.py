"""A provider that misbehaves by a list of faults, and knows what it really holds.

A draw is one seed: a kind of paging, faults, and sizes at which mistakes show.
"""

from dataclasses import dataclass, field
from enum import StrEnum
from random import Random
from typing import Any

from tests.support.scripted_server import ReceivedRequest, Reply, json_reply

Record = dict[str, Any]

LAYOUT = {
    "single": 'by = "single"',
    "keyset": 'by = "keyset"\nsend = "after"\nfield = "id"\norder = { sort = "id" }',
    "tied keyset": (
        'by = "keyset"\nsend = "after"\nfield = "at"\norder = { sort = "at" }'
    ),
    "offset": 'by = "offset"\nsend = "offset"',
    "page": 'by = "page"\nsend = "page"',
    "cursor": 'by = "cursor"\nsend = "token"\nnext = "next"',
    "link": 'by = "link"\nnext = "next"',
}


# the kinds for which a short page may be declared to be the end
SHORT_ENDS = {"keyset", "tied keyset", "offset", "page"}


class Fault(StrEnum):
    # a page has at most so many records, whatever is requested
    CAPPED = "capped"
    # a keyset includes its bound
    INCLUSIVE = "inclusive"
    # from some request on, the list is empty, with status 200: beside an error, …
    ERROR_BODY = "error body"
    # … while there is more, …
    EMPTY_WITH_MORE = "empty with more"
    # … or while a total is announced
    EMPTY_WITH_TOTAL = "empty with total"
    # from some request on, the next token is absent although there is more
    MORE_WITHOUT_NEXT = "more without next"


# what is said although records are held back
EMPTY: dict[Fault, Record] = {
    Fault.ERROR_BODY: {"error": "backend timeout"},
    Fault.EMPTY_WITH_MORE: {"meta": {"has_more": True}},
    Fault.EMPTY_WITH_TOTAL: {},
}


@dataclass(frozen=True, kw_only=True)
class MisbehavingProvider:
    """One draw; equal seeds misbehave equally."""

    seed: int
    kind: str
    faults: frozenset[Fault]
    size: int
    cap: int
    is_short_end: bool = False
    # the declaration of axes, whose parameters it ignores
    shards: str = ""
    # the request at which it begins to fail, and how many it has had
    fails_at: int = 1
    requests: list[str] = field(default_factory=list, repr=False)
    records: list[Record] = field(repr=False)

    @classmethod
    def draw(cls, seed: int) -> "MisbehavingProvider":
        chance = Random(seed)
        kind = chance.choice([*LAYOUT])
        drawn = frozenset(each for each in Fault if chance.random() < 1 / 5)
        size = chance.randint(2, 12)
        # groups of records with one time, most of them small
        largest = chance.choice([1, 2, size // 2 + 1, size, 2 * size])
        return cls(
            seed=seed,
            kind=kind,
            faults=drawn,
            size=size,
            cap=chance.randint(1, size),
            is_short_end=kind in SHORT_ENDS and chance.random() < 1 / 3,
            fails_at=chance.randint(1, 6),
            records=make_records(chance, chance.choice([0, 1, size, 40]), largest),
        )

    @property
    def ids(self) -> list[int]:
        return sorted(record["id"] for record in self.records)

    @property
    def is_beyond_proof(self) -> bool:
        """Whether nothing that it says differs from a provider that holds less.

        The records that it does not send have the same time as all that it sends.
        """
        is_capped = Fault.CAPPED in self.faults and self.kind == "tied keyset"
        return is_capped and len({record["at"] for record in self.records}) == 1

    @property
    def pages(self) -> str:
        """Return the declaration of its paging."""
        end = '\nend = "short"' if self.is_short_end else ""
        size = f'size = {{ send = "limit", value = {self.size} }}'
        return f"{LAYOUT[self.kind]}\n{size}{end}\n"

    def answer(self, request: ReceivedRequest) -> Reply:
        self.requests.append(request.target)
        rows, start = self._start(request.query)
        limit = int(request.query["limit"])
        if Fault.CAPPED in self.faults:
            limit = min(limit, self.cap)
        if self.kind == "single":
            limit = max(limit, len(rows)) if Fault.CAPPED not in self.faults else limit
        page, more = rows[start : start + limit], start + limit < len(rows)
        body: dict[str, Any] = {"items": page}
        if self.says_total:
            body["total"] = len(self.records)
        if more and self.kind == "cursor":
            body["next"] = str(start + limit)
        if more and self.kind == "link":
            body["next"] = f"?token={start + limit}&limit={self.size}"
        if page and len(self.requests) >= self.fails_at:
            self._fail(body, more=more)
        return json_reply(body)

    @property
    def says_total(self) -> bool:
        # nothing else tells that a single page is not the whole
        is_cut = self.kind == "single" and Fault.CAPPED in self.faults
        return is_cut or Fault.EMPTY_WITH_TOTAL in self.faults

    def _fail(self, body: dict[str, Any], *, more: bool) -> None:
        if more and Fault.MORE_WITHOUT_NEXT in self.faults:
            body.pop("next", None)
            body["has_more"] = True
        for fault, said in EMPTY.items():
            if fault in self.faults:
                body.pop("next", None)
                body.update(said, items=[])

    def _start(self, query: dict[str, str]) -> tuple[list[Record], int]:
        """Return the records in the requested order, and where the page begins."""
        if self.kind == "offset":
            return self.records, int(query["offset"])
        if self.kind == "page":
            capped = Fault.CAPPED in self.faults
            size = min(self.size, self.cap) if capped else self.size
            return self.records, (int(query["page"]) - 1) * size
        if self.kind in {"cursor", "link"}:
            return self.records, int(query.get("token", 0))
        return self._above(query), 0

    def _above(self, query: dict[str, str]) -> list[Record]:
        name = query["sort"]
        ordered = sorted(self.records, key=lambda record: (record[name], record["id"]))
        if "after" not in query:
            return ordered
        bound: Any = query["after"]
        bound = int(bound) if name == "id" else bound
        is_inclusive = Fault.INCLUSIVE in self.faults
        return [
            record
            for record in ordered
            if record[name] > bound or (is_inclusive and record[name] == bound)
        ]


def make_records(chance: Random, count: int, largest: int) -> list[Record]:
    """Make records of which up to `largest` share a time."""
    records: list[Record] = []
    second = 0
    while len(records) < count:
        second += 1
        at = f"2026-03-01T12:00:{second:02}Z"
        for _ in range(min(chance.randint(1, largest), count - len(records))):
            records.append({"id": len(records) + 1, "at": at})
    # ids do not rise with time
    ids = [record["id"] for record in records]
    chance.shuffle(ids)
    return [{**record, "id": each} for record, each in zip(records, ids, strict=True)]
