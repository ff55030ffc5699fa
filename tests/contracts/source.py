"""What every source of pages promises, whatever it reads from."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

from penstock.domain.dataset import Dataset
from penstock.domain.pages import LazyPage, Page, Position, Redirect
from penstock.domain.sharding.shard import Shard
from penstock.errors import Rejected, SourceUnavailable
from penstock.ports import Source


@dataclass(frozen=True, kw_only=True)
class Provided:
    """A source with everything that a test has to know of it."""

    source: Source
    dataset: Dataset
    shard: Shard
    # the ids of the records it holds in this shard, in its order; several pages
    ids: tuple[int, ...]
    # how many requests have been sent so far
    requests: Callable[[], int]
    # stands in the declaration and must never be shown
    secret: str

    def page(self, position: Position | None) -> Page:
        answer = self.source.fetch(self.shard, position, since=None)
        assert not isinstance(answer, Redirect)
        return answer.read() if isinstance(answer, LazyPage) else answer

    def pages(self) -> Iterator[Page]:
        """Walk the shard to its end; a walk without end fails."""
        position: Position | None = None
        for _ in range(len(self.ids) + 2):
            page = self.page(position)
            yield page
            if page.next is None:
                return
            position = page.next
        pytest.fail("the shard has no end")


class SourceContract:
    """Subclasses give the fixtures `provided` and `broken`.

    The dataset has a field `id`; `broken` is a source whose next answer is cut off.
    """

    def test_a_walk_brings_every_record_once(self, provided: Provided):
        place = provided.dataset.path_index[("id",)]
        rows = [row for page in provided.pages() for row in page.rows]
        assert tuple(row.values[place] for row in rows) == provided.ids

    def test_a_walk_takes_several_pages(self, provided: Provided):
        assert sum(1 for page in provided.pages() if page.rows) > 1

    def test_a_page_has_a_next_position_or_a_proof_and_never_both(
        self, provided: Provided
    ):
        ends = [(page.next is None, page.proof is None) for page in provided.pages()]
        assert ends == [(False, True)] * (len(ends) - 1) + [(True, False)]

    def test_a_fetch_sends_one_request(self, provided: Provided):
        pages = sum(1 for _ in provided.pages())
        assert provided.requests() == pages

    def test_the_same_position_brings_the_same_page(self, provided: Provided):
        first = provided.page(None)
        again = [provided.page(first.next) for _ in range(2)]
        assert list(again[0].rows) == list(again[1].rows)
        assert again[0].next == again[1].next

    def test_a_position_survives_the_ledger(self, provided: Provided):
        for page in provided.pages():
            if page.next is not None:
                assert json.loads(json.dumps(page.next)) == page.next

    def test_rows_hold_a_value_for_each_path_and_count_from_zero(
        self, provided: Provided
    ):
        for page in provided.pages():
            assert [row.position for row in page.rows] == list(range(len(page.rows)))
            for row in page.rows:
                assert len(row.values) == len(provided.dataset.paths)

    def test_a_raw_record_is_read_again_as_it_was_fetched(self, provided: Provided):
        for page in provided.pages():
            for row in page.rows:
                assert isinstance(row.raw, bytes)
                assert provided.source.read(row.raw).values == row.values

    @pytest.mark.parametrize(
        "raw",
        [b"", b"\x00", b"\xff\xfe", b"{", b'{"id":', b"[" * 100_000, b'"\\ud800"'],
        ids=["empty", "nul", "not utf-8", "open", "cut off", "deep", "surrogate"],
    )
    def test_any_bytes_can_be_read(self, provided: Provided, raw: bytes):
        row = provided.source.read(raw)
        assert row.raw == raw
        assert len(row.values) == len(provided.dataset.paths)

    def test_a_preview_sends_nothing_and_shows_no_secret(self, provided: Provided):
        shown = provided.source.preview(provided.shard, since=None)
        assert shown
        assert provided.secret not in shown
        assert provided.requests() == 0

    def test_a_broken_answer_is_never_a_page(self, broken: Provided):
        with pytest.raises((SourceUnavailable, Rejected)) as caught:
            broken.page(None)
        assert broken.secret not in str(caught.value)
        assert broken.requests() == 1
