"""Which filters of two shards a provider seems to ignore."""

from decimal import Decimal

import pytest

from penstock.domain.sharding.axes import BboxAxis, ListAxis, RangeAxis, TimeAxis
from penstock.domain.sharding.ignored_filters import (
    digest_keys,
    name_ignored_filters,
    unchecked_parameters,
)
from penstock.domain.sharding.parts import Choice, Span
from penstock.domain.sharding.shard import Shard
from tests.support.builders import HOUR, NOON

TOWN = ListAxis(name="town", values=("Bonn", "Ulm"), send="t")
IDS = RangeAxis(
    name="ids", start=0, until=20, step=10, send_from="a", send_until="b", check=("id",)
)
AREA = (Decimal(47), Decimal(5), Decimal(49), Decimal(7))


@pytest.mark.parametrize(
    ("axis", "sent"),
    [
        (TOWN, ("t",)),
        (ListAxis(name="town", values=("Bonn",)), ()),
        (IDS, ()),
        (TimeAxis(name="w", start=NOON, step=HOUR, send_until="before"), ("before",)),
        (BboxAxis(name="tile", area=AREA, step=Decimal(1), send="box"), ("box",)),
        (
            BboxAxis(name="tile", area=AREA, step=Decimal(1), send={"north": "n"}),
            ("n",),
        ),
    ],
)
def test_a_filter_without_a_check_is_found(axis, sent):
    assert unchecked_parameters(axis) == sent


def test_only_filters_without_a_check_that_differ_are_named():
    def shard(town: str, start: int) -> Shard:
        return Shard((TOWN, IDS), (Choice(town), Span(start, start + 10)))

    ignored = name_ignored_filters(shard("Bonn", 0), shard("Ulm", 10))

    assert ignored == "t of axis 'town'"
    assert name_ignored_filters(shard("Bonn", 0), shard("Bonn", 10)) == ""


def test_pages_are_alike_in_any_order_and_only_with_enough_keys():
    keys = [(number,) for number in range(12)]
    assert digest_keys(keys) == digest_keys(reversed(keys)) != digest_keys(keys[1:])
    assert digest_keys([*keys[:9], *keys[:9], None]) is None
