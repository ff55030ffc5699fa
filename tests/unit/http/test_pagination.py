from decimal import Decimal

import pytest

from penstock.adapters.http.pagination import (
    ClientBounds,
    NextStep,
    PageFacts,
    client_bounds,
    is_past_end,
    next_step,
    page_parameters,
)
from penstock.domain.pages import Proof
from penstock.domain.sharding.axes import ListAxis, RangeAxis
from penstock.domain.sharding.parts import Choice, Span
from penstock.domain.sharding.shard import Shard
from penstock.domain.source import End, Pagination, Paging
from penstock.errors import CursorUnreadable, PageRepeats, Rejected, SourceUnavailable

EVERYWHERE = ClientBounds()
HALF = Decimal("0.50")
KEYSET = Pagination(
    by=Paging.KEYSET,
    send="greaterthanid",
    field=("ID",),
    order={"sortby": "id_asc"},
    size_send="maxresults",
    size=3,
)
KEYSET_SHORT = Pagination(by=Paging.KEYSET, field=("ID",), size=3, end=End.SHORT)
OFFSET = Pagination(by=Paging.OFFSET, send="offset", size=3)
PAGE = Pagination(by=Paging.PAGE, send="page", first=0, size=3)
CURSOR = Pagination(by=Paging.CURSOR, send="token", next=("next",))
LINK = Pagination(by=Paging.LINK)


def keys(*values: object) -> PageFacts:
    return PageFacts(rows=len(values), keys=values)


def rows(count: int) -> PageFacts:
    return PageFacts(rows=count)


@pytest.mark.parametrize(
    ("pages", "position", "sent"),
    [
        (KEYSET, None, {}),
        (KEYSET, {"after": 7}, {"greaterthanid": 7}),
        (OFFSET, None, {"offset": 0}),
        (OFFSET, {"offset": 6}, {"offset": 6}),
        (PAGE, None, {"page": 0}),
        (PAGE, {"page": 4}, {"page": 4}),
        (CURSOR, None, {}),
        (CURSOR, {"token": "x"}, {"token": "x"}),
        (LINK, {"url": "http://x"}, {}),
        (Pagination(), None, {}),
    ],
)
def test_the_position_is_sent(pages, position, sent):
    fixed = {"sortby": "id_asc", "maxresults": 3} if pages is KEYSET else {}
    assert page_parameters(pages, position, EVERYWHERE) == {**fixed, **sent}


def test_a_range_that_is_not_sent_begins_one_below():
    reach = ClientBounds(after=99, end=200)
    assert page_parameters(KEYSET, None, reach)["greaterthanid"] == 99
    assert page_parameters(KEYSET, {"after": 150}, reach)["greaterthanid"] == 150


@pytest.mark.parametrize("pages", [KEYSET, OFFSET, PAGE, CURSOR])
def test_a_position_of_another_kind_is_unreadable(pages):
    with pytest.raises(CursorUnreadable):
        page_parameters(pages, {"elsewhere": 1}, EVERYWHERE)


def test_the_bounds_that_are_not_sent_are_retained():
    country = ListAxis(name="country", values=("DE",), send="c")
    ids = RangeAxis(name="ids", start=0, until=100, step=10)
    sent = RangeAxis(
        name="ids", start=0, until=100, step=10, send_from="a", send_until="b"
    )
    parts = (Choice("DE"), Span(10, 20))
    assert client_bounds(Shard((country, ids), parts)) == ClientBounds(after=9, end=20)
    assert client_bounds(Shard((country, sent), parts)) == EVERYWHERE
    assert client_bounds(Shard((), ())) == EVERYWHERE


@pytest.mark.parametrize("pages", [KEYSET, KEYSET_SHORT, OFFSET, PAGE])
def test_an_empty_page_is_proof(pages):
    assert next_step(pages, None, rows(0), EVERYWHERE) == NextStep(
        None, Proof.EMPTY_PAGE
    )


@pytest.mark.parametrize(
    ("pages", "position", "seen", "following"),
    [
        (KEYSET, None, keys(1, 5, 9), {"after": 9}),
        (KEYSET, {"after": 9}, keys(10), {"after": 10}),
        (KEYSET, {"after": 9}, keys(10, 10, 11), {"after": 11}),
        (KEYSET, {"after": 9}, keys(None, 10, {}), {"after": 10}),
        (KEYSET, {"after": 9}, keys(10, "odd", []), {"after": 10}),
        (KEYSET, {"after": Decimal("0.5")}, keys(Decimal("1.5"), 2), {"after": 2}),
        (KEYSET, {"after": "b"}, keys("c", "a"), {"after": "a"}),
        (KEYSET_SHORT, None, keys(1, 2, 3), {"after": 3, "full": True}),
        # perhaps the provider never sends three
        (KEYSET_SHORT, None, keys(1, 2), {"after": 2}),
        (KEYSET_SHORT, {"after": 2}, keys(3, 4, 5), {"after": 5}),
        (KEYSET_SHORT, {"after": 2}, keys(3), {"after": 3}),
        (OFFSET, None, rows(2), {"offset": 2}),
        (OFFSET, {"offset": 6}, rows(3), {"offset": 9}),
        (PAGE, None, rows(3), {"page": 1}),
        (PAGE, {"page": 4}, rows(1), {"page": 5}),
        (CURSOR, None, PageFacts(rows=0, next="x"), {"token": "x"}),
        (CURSOR, {"token": "x"}, PageFacts(rows=3, next="y"), {"token": "y"}),
        (CURSOR, {"token": 1}, PageFacts(rows=3, next=0), {"token": 0}),
        (CURSOR, None, PageFacts(rows=3, next=HALF), {"token": HALF}),
        (LINK, None, PageFacts(rows=0, next="b", url="a"), {"url": "b"}),
    ],
)
def test_a_page_without_proof_leads_on(pages, position, seen, following):
    step = next_step(pages, position, seen, EVERYWHERE)
    assert (step.next, step.proof) == (following, None)


@pytest.mark.parametrize(
    ("pages", "seen", "rises"),
    [
        (KEYSET, keys(1, 2), True),
        (KEYSET, keys("a", "b"), False),
        (OFFSET, rows(2), False),
    ],
)
def test_only_numbers_are_known_to_rise(pages, seen, rises):
    assert next_step(pages, None, seen, EVERYWHERE).rises is rises


@pytest.mark.parametrize("by", [Paging.KEYSET, Paging.OFFSET, Paging.PAGE])
@pytest.mark.parametrize(
    ("end", "count", "proof"),
    [
        (End.SHORT, 2, Proof.SHORT_PAGE),
        (End.SHORT, 3, None),
        (End.SHORT, 4, None),
        (End.EMPTY, 2, None),
    ],
)
def test_a_short_page_is_proof_only_where_it_is_declared(by, end, count, proof):
    pages = Pagination(by=by, field=("ID",), size=3, end=end)
    (position,) = [
        position
        for position in ({"after": -1}, {"offset": 3}, {"page": 2})
        if {"keyset": "after"}.get(by, by) in position
    ]
    filled = {**position, "full": True}
    assert next_step(pages, filled, keys(*range(count)), EVERYWHERE).proof == proof
    assert next_step(pages, position, keys(*range(count)), EVERYWHERE).proof is None
    assert next_step(pages, None, keys(*range(count)), EVERYWHERE).proof is None


def test_a_short_page_of_shared_values_is_proof_behind_full_ones():
    first = next_step(KEYSET_SHORT, None, tied(1, 5, 9), EVERYWHERE)
    assert first.next == {"after": 5, "most": 3, "full": True}

    end = next_step(KEYSET_SHORT, first.next, tied(9, 9), EVERYWHERE)
    assert end.proof is Proof.SHORT_PAGE


def test_without_a_size_no_page_is_short():
    pages = Pagination(by=Paging.OFFSET, end=End.SHORT)
    assert next_step(pages, None, rows(1), EVERYWHERE).proof is None


@pytest.mark.parametrize("token", [None, "", False])
def test_no_token_is_proof(token):
    seen = PageFacts(rows=3, next=token)
    assert next_step(CURSOR, {"token": "x"}, seen, EVERYWHERE).proof == Proof.NO_NEXT


def test_no_link_is_proof():
    assert next_step(LINK, None, rows(3), EVERYWHERE).proof == Proof.NO_NEXT


def test_a_single_page_is_the_whole():
    assert next_step(Pagination(), None, rows(0), EVERYWHERE) == NextStep(
        None, Proof.WHOLE
    )


@pytest.mark.parametrize("token", [{}, ["x"], True])
def test_a_token_that_is_a_structure_is_refused(token):
    with pytest.raises(Rejected, match=r"source\.pages\.next"):
        next_step(CURSOR, None, PageFacts(rows=1, next=token), EVERYWHERE)


@pytest.mark.parametrize(
    ("pages", "position", "seen"),
    [
        (KEYSET, {"after": 9}, keys(1, 5, 9)),
        (KEYSET, {"after": 9}, keys(9)),
        (KEYSET_SHORT, {"after": 9}, keys(9)),
        (KEYSET, {"after": "c"}, keys("a", "b", "c")),
        (CURSOR, {"token": "x"}, PageFacts(rows=3, next="x")),
        (LINK, None, PageFacts(rows=3, next="http://x/a", url="http://x/a")),
    ],
)
def test_a_page_that_leads_back_to_itself_repeats(pages, position, seen):
    with pytest.raises(PageRepeats):
        next_step(pages, position, seen, EVERYWHERE)


@pytest.mark.parametrize(
    ("position", "seen"),
    [
        (None, keys(1, 3, 2)),
        ({"after": 9}, keys(8, 10)),
        ({"after": 9}, keys(9, 10)),
        (None, keys("2026-01-02T00:00:00Z", "2026-01-01T23:59:00Z")),
        ({"after": "2026-01-02T00:00:00Z"}, keys("2026-01-01T23:59:00+00:00")),
    ],
)
def test_keys_out_of_order_are_a_passing_fault(position, seen):
    with pytest.raises(SourceUnavailable, match="out of order: ID"):
        next_step(KEYSET, position, seen, EVERYWHERE)


@pytest.mark.parametrize("seen", [keys(None, None), keys({}, []), keys("", [])])
def test_a_page_without_any_key_names_the_setting(seen):
    with pytest.raises(Rejected, match=r"at ID; check source\.pages\.field"):
        next_step(KEYSET, None, seen, EVERYWHERE)


@pytest.mark.parametrize(
    ("position", "seen"), [({"after": 1}, keys("a")), ({"after": "a"}, keys(1))]
)
def test_keys_that_change_their_type_are_refused(position, seen):
    with pytest.raises(Rejected, match="type"):
        next_step(KEYSET, position, seen, EVERYWHERE)


@pytest.mark.parametrize(
    ("seen", "proof"),
    [
        (keys(12, 15), None),
        (keys(12, 19), Proof.END_OF_RANGE),
        (keys(12, 20), Proof.END_OF_RANGE),
        (keys(25), Proof.END_OF_RANGE),
        (keys(12, Decimal("19.0")), None),
        (keys(12, Decimal("20.0")), Proof.END_OF_RANGE),
        (rows(0), Proof.EMPTY_PAGE),
    ],
)
def test_a_range_ends_where_its_numbers_do(seen, proof):
    assert next_step(KEYSET, None, seen, ClientBounds(after=9, end=20)).proof == proof


def test_records_below_the_range_are_a_passing_fault():
    with pytest.raises(SourceUnavailable, match="out of order"):
        next_step(KEYSET, None, keys(5, 12), ClientBounds(after=9, end=20))


def test_only_numbers_at_or_behind_the_end_are_cut_off():
    reach = ClientBounds(after=9, end=20)
    assert [
        is_past_end(each, reach) for each in (19, 20, Decimal("21.5"), None, "99")
    ] == [
        False,
        True,
        True,
        False,
        False,
    ]
    assert not is_past_end(99, EVERYWHERE)


# a keyset over a field of which several records may have the same value


def tied(*values: object) -> PageFacts:
    return PageFacts(rows=len(values), keys=values, is_unique=False)


@pytest.mark.parametrize(
    ("position", "seen", "following"),
    [
        (None, tied(1, 5, 9), {"after": 5, "most": 3}),
        (None, tied(1, 9, 9), {"after": 1, "most": 3}),
        ({"after": 1, "most": 5}, tied(9, 9, 12), {"after": 9, "most": 5}),
        # a position of an earlier version
        ({"after": 1}, tied(9, 12), {"after": 9, "most": 2}),
        # a provider that includes its bound
        ({"after": 9}, tied(9, 12, 13), {"after": 12, "most": 3}),
        (None, tied("2026-01-01T00:00:00Z", "2026-01-01T01:00:00+01:00"), None),
        (None, tied("Bonn", "ULM", "Ulm "), {"after": "Bonn", "most": 3}),
    ],
)
def test_a_shared_value_is_read_again(position, seen, following):
    step = next_step(KEYSET, position, seen, EVERYWHERE)
    expected = following or {"after": seen.keys[-1], "below": None, "most": 2}
    assert (step.next, step.proof) == (expected, None)
    assert step.overlaps


def test_records_with_one_value_are_passed_if_none_follow():
    alone = next_step(KEYSET, {"after": 5, "most": 3}, tied(9, 9), EVERYWHERE)
    assert alone.next == {"after": 9, "below": 5, "most": 3}

    end = next_step(KEYSET, alone.next, tied(), EVERYWHERE)
    assert end.proof is Proof.EMPTY_PAGE


def test_records_that_follow_one_value_show_that_it_may_be_incomplete():
    passed = {"after": 9, "below": 5, "most": 2}

    back = next_step(KEYSET, passed, tied(12, 13), EVERYWHERE)

    assert back.next == {"after": 5, "beyond": 9, "most": 2}
    assert not back.rises
    again = next_step(KEYSET, back.next, tied(9, 9, 12), EVERYWHERE)
    assert again.next == {"after": 9, "most": 3}
    # the provider cuts its pages short of the size
    with pytest.raises(Rejected, match=r"more records have the ID 9 .* larger"):
        next_step(KEYSET, back.next, tied(9, 9), EVERYWHERE)


@pytest.mark.parametrize(
    ("position", "seen"),
    [
        (None, tied(9, 9, 9)),
        ({"after": 9, "most": 3}, tied(9, 9, 12)),
        # as many as the provider sends at most, although more were asked for
        ({"after": 5, "most": 2}, tied(9, 9)),
    ],
)
def test_a_full_page_without_a_lower_value_fails_with_its_remedy(position, seen):
    with pytest.raises(Rejected, match="another field, best by the key"):
        next_step(KEYSET, position, seen, EVERYWHERE)


def test_a_provider_that_includes_its_bound_comes_to_an_end():
    passed = next_step(KEYSET, {"after": 9}, tied(9, 12), EVERYWHERE).next
    assert passed == {"after": 12, "below": 9, "most": 2}

    assert next_step(KEYSET, passed, tied(12), EVERYWHERE).proof is Proof.EMPTY_PAGE
    with pytest.raises(PageRepeats):
        next_step(KEYSET, passed, tied(12, 12), EVERYWHERE)


def test_a_range_ends_behind_the_last_value_that_may_be_shared():
    bounds = ClientBounds(after=9, end=20)
    assert next_step(KEYSET, None, tied(12, 19), bounds).next == {
        "after": 12,
        "most": 2,
    }
    assert next_step(KEYSET, None, tied(19, 20), bounds).proof is Proof.END_OF_RANGE
