"""What every store promises of the states of an import's shards."""

from penstock.ports import Stores
from tests.support.builders import TIMEOUT, claim, dataset, plan

POI = dataset()
SHARDS = ("country:DE|ids:0..9", "country:DE|ids:9..18", "country:FR|ids:0..9")


class CoverageContract:
    """Subclasses bring `stores`."""

    def test_shards_are_counted_by_their_first_axis(self, stores: Stores):
        import_id = plan(stores, POI, *SHARDS)
        stores.ledger.fail(claim(stores, POI), TIMEOUT)
        claim(stores, POI)

        first, second = stores.coverage.parts(import_id, limit=9)

        assert (first.part, first.shards.total) == ("country:DE", 2)
        assert (first.shards.failed, first.shards.leased) == (1, 1)
        assert (second.part, second.shards.pending) == ("country:FR", 1)
        assert [part.part for part in stores.coverage.parts(import_id, limit=1)] == [
            "country:DE"
        ]

    def test_buckets_hold_all_shards_in_the_order_of_the_plan(self, stores: Stores):
        import_id = plan(stores, POI, *(f"ids:{n:03}" for n in range(100)))
        for _ in range(10):
            claim(stores, POI)

        buckets = stores.coverage.buckets(import_id, count=10)

        assert [bucket.total for bucket in buckets] == [10] * 10
        assert [bucket.leased for bucket in buckets] == [10, *[0] * 9]

    def test_few_shards_have_a_bucket_each(self, stores: Stores):
        import_id = plan(stores, POI, "a", "b", "c")

        buckets = stores.coverage.buckets(import_id, count=400)

        assert [bucket.pending for bucket in buckets] == [1, 1, 1]
