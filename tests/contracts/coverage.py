"""What every store promises of the states of an import's shards."""

from penstock.domain.jobs import JobId, Shards
from penstock.ports import Stores
from penstock.ports.coverage import MatrixCell
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

    def test_two_axes_are_a_matrix_with_splits_where_they_were_planned(
        self, stores: Stores
    ):
        keys = [f"country:{c}|day:{d}" for c in "ab" for d in range(4)]
        import_id = plan(stores, dataset(), *keys)
        stores.ledger.split(
            claim(stores, dataset()), ["country:a|day:0.0", "country:a|day:0.5"]
        )
        stores.ledger.fail(claim(stores, dataset()), TIMEOUT)

        cells = stores.coverage.matrix(import_id, cells=5)

        assert [(c.row, c.column, c.down, c.across) for c in cells] == [
            (0, 0, "country:a", ("day:0", "day:1")),
            (0, 1, "country:a", ("day:2", "day:3")),
            (1, 0, "country:b", ("day:0", "day:1")),
            (1, 1, "country:b", ("day:2", "day:3")),
        ]
        assert cells[0].shards == Shards(total=4, split=1, pending=2, failed=1)
        assert cells[3].shards == Shards(total=2, pending=2)

        def keys_in(cell: MatrixCell, **only: bool) -> list[str]:
            found = stores.coverage.jobs(
                import_id, within=cell.jobs, after=None, limit=9,
                only_missing=only["only_missing"],
            )  # fmt: skip
            return [job.shard_key for job in found]

        assert keys_in(cells[0], only_missing=False) == [
            "country:a|day:0", "country:a|day:1", "country:a|day:0.0",
            "country:a|day:0.5",
        ]  # fmt: skip
        assert keys_in(cells[0], only_missing=True) == [
            "country:a|day:1", "country:a|day:0.0", "country:a|day:0.5",
        ]  # fmt: skip

    def test_what_is_not_a_product_of_axes_is_no_matrix(self, stores: Stores):
        plain = plan(stores, dataset(), "country:a", "country:b")
        uneven = plan(
            stores, dataset("shops"), "c:a|d:1", "c:a|d:2", "c:b|d:1", "c:c|d:2"
        )
        many = plan(
            stores, dataset("news"), *(f"c:{c}|d:{d}" for c in "abc" for d in "xy")
        )

        assert stores.coverage.matrix(plain, cells=9) == []
        assert stores.coverage.matrix(uneven, cells=9) == []
        assert stores.coverage.matrix(many, cells=2) == []
        assert len(stores.coverage.matrix(many, cells=3)) == 3

    def test_jobs_are_found_page_by_page(self, stores: Stores):
        import_id = plan(stores, dataset(), "a", "b", "c")
        claim(stores, dataset())

        def find(after: JobId | None) -> list[str]:
            found = stores.coverage.jobs(
                import_id, within=None, only_missing=True, after=after, limit=1
            )
            return [job.shard_key for job in found]

        (first,) = stores.coverage.jobs(
            import_id, within=None, only_missing=True, after=None, limit=1
        )
        assert first.shard_key == "b"
        assert find(first.id) == ["c"]

    def test_few_shards_have_a_bucket_each(self, stores: Stores):
        import_id = plan(stores, POI, "a", "b", "c")

        buckets = stores.coverage.buckets(import_id, count=400)

        assert [bucket.pending for bucket in buckets] == [1, 1, 1]
