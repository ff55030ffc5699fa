"""What every store promises of requests that are made again."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import timedelta

import pytest

from penstock.domain.import_scope import ImportScope
from penstock.domain.jobs import Import, ImportStatus, Mode
from penstock.errors import Conflict, IdempotencyKeyReused, RequestInProgress
from penstock.ports import Stores
from penstock.ports.idempotency import (
    IdempotentRequest,
    ImportSpec,
    RequestClaim,
    StartedImport,
)
from tests.support.builders import (
    A_MOMENT,
    HOUR,
    MINUTE,
    add_shards,
    begin,
    dataset,
    jobs_of,
)
from tests.support.racing import errors_in, in_threads

POI = dataset()
ASK = IdempotentRequest(scope="ann imports poi", key="k1", digest=b"full")
OTHER = replace(ASK, digest=b"delta")
WITH_FILE = replace(ASK, key="k2", file="spool/a.csv")
A_DAY = timedelta(days=1)


def anything(known: Import, planned: Callable[[], Iterable[str]]) -> None:
    """Approve of any import."""


def wanted(*shard_keys: str, mode: Mode = Mode.FULL, approve=anything) -> ImportSpec:
    return ImportSpec(
        scope=ImportScope(mode=mode),
        declaration="d1",
        approve=approve,
        shard_keys=shard_keys,
    )


def claimed(stores: Stores, ask: IdempotentRequest = ASK) -> RequestClaim:
    claim = stores.requests.claim(ask)
    assert isinstance(claim, RequestClaim)
    return claim


def answered(
    stores: Stores, ask: IdempotentRequest = ASK, of: ImportSpec | None = None
) -> StartedImport:
    """Make a request, and answer it."""
    stores.schema.ensure_table(POI)
    return stores.requests.begin(claimed(stores, ask), POI, of or wanted())


def all_imports(stores: Stores) -> list[int]:
    return [known.id for known, _ in stores.imports.recent(limit=50)]


class RequestsContract:
    """Subclasses bring `stores` and `pass_time`."""

    # asking

    def test_a_request_is_answered_by_an_import(self, stores: Stores):
        done = answered(stores)

        assert not done.resumed
        assert done.import_.status is ImportStatus.PLANNING
        assert all_imports(stores) == [done.import_.id]

    def test_requested_again_it_has_the_same_answer(self, stores: Stores):
        done = answered(stores)

        again = stores.requests.claim(ASK)

        assert isinstance(again, StartedImport)
        assert (again.import_.id, again.resumed) == (done.import_.id, False)
        assert all_imports(stores) == [done.import_.id]

    def test_the_same_key_for_something_else_is_refused(self, stores: Stores):
        answered(stores)

        with pytest.raises(IdempotencyKeyReused, match="'k1'"):
            stores.requests.claim(OTHER)

    def test_the_same_key_of_somebody_else_is_another_request(self, stores: Stores):
        answered(stores)

        assert claimed(stores, replace(ASK, scope="ben imports poi")).fence == 1

    def test_while_it_is_worked_on_it_is_not_taken_again(self, stores: Stores):
        claimed(stores)

        with pytest.raises(RequestInProgress):
            stores.requests.claim(ASK)
        with pytest.raises(IdempotencyKeyReused):
            stores.requests.claim(OTHER)

    def test_a_request_that_came_to_nothing_can_be_made_again(self, stores: Stores):
        stores.requests.give_up(claimed(stores))

        assert claimed(stores, OTHER).fence == 1

    def test_giving_up_does_not_take_back_an_answer(self, stores: Stores):
        stores.schema.ensure_table(POI)
        claim = claimed(stores)
        stores.requests.begin(claim, POI, wanted())

        stores.requests.give_up(claim)

        assert isinstance(stores.requests.claim(ASK), StartedImport)

    def test_one_that_was_never_answered_is_taken_over(
        self, stores: Stores, pass_time: Callable[[timedelta], None]
    ):
        stores.schema.ensure_table(POI)
        lost = claimed(stores)
        pass_time(MINUTE + A_MOMENT)
        taken = claimed(stores)

        with pytest.raises(RequestInProgress):
            stores.requests.begin(lost, POI, wanted())
        assert all_imports(stores) == []
        assert not stores.requests.begin(taken, POI, wanted()).resumed

    def test_a_file_takes_longer(
        self, stores: Stores, pass_time: Callable[[timedelta], None]
    ):
        claimed(stores, WITH_FILE)
        pass_time(MINUTE + A_MOMENT)

        with pytest.raises(RequestInProgress):
            stores.requests.claim(WITH_FILE)

    def test_of_many_at_once_one_makes_an_import(self, stores: Stores):
        stores.schema.ensure_table(POI)

        def ask() -> object:
            claim = stores.requests.claim(ASK)
            if isinstance(claim, StartedImport):
                return claim
            return stores.requests.begin(claim, POI, wanted())

        results = in_threads(*[ask] * 6)

        assert {type(each) for each in errors_in(results)} <= {RequestInProgress}
        (import_id,) = {
            each.import_.id for each in results if isinstance(each, StartedImport)
        }
        assert all_imports(stores) == [import_id]

    # beginning

    def test_an_unfinished_import_is_taken_up(self, stores: Stores):
        stores.schema.ensure_table(POI)
        unfinished = begin(stores, POI)

        done = answered(stores)

        assert done.resumed
        assert done.import_.id == unfinished.id
        again = stores.requests.claim(ASK)
        assert isinstance(again, StartedImport)
        assert again.resumed

    def test_an_import_that_is_not_approved_is_left_alone(self, stores: Stores):
        seen = []

        def refuse(known: Import, planned: Callable[[], Iterable[str]]) -> None:
            seen.append((known.id, [*planned()]))
            raise Conflict("another one")

        stores.schema.ensure_table(POI)
        unfinished = begin(stores, POI)
        add_shards(stores, unfinished.id, ["a", "b"])
        claim = claimed(stores)

        with pytest.raises(Conflict):
            stores.requests.begin(claim, POI, wanted("c", approve=refuse))

        assert seen == [(unfinished.id, ["a", "b"])]
        assert len(jobs_of(stores, unfinished.id)) == 2
        with pytest.raises(RequestInProgress):
            stores.requests.claim(ASK)

    def test_with_its_shards_workers_may_begin_at_once(self, stores: Stores):
        done = answered(stores, of=wanted("a", "b", mode=Mode.BACKFILL))

        known, shards = stores.imports.get(done.import_.id)
        assert (known.status, known.mode) == (ImportStatus.RUNNING, Mode.BACKFILL)
        assert [each.shard_key for each in jobs_of(stores, known.id)] == ["a", "b"]
        assert shards.pending == 2

    def test_shards_are_not_added_to_an_import_that_is_taken_up(self, stores: Stores):
        first = answered(stores, of=wanted("a"))
        again = answered(stores, replace(ASK, key="k3"), of=wanted("b"))

        assert again.resumed
        assert len(jobs_of(stores, first.import_.id)) == 1

    # forgetting

    def test_after_a_day_a_request_is_forgotten(
        self, stores: Stores, pass_time: Callable[[timedelta], None]
    ):
        answered(stores)
        pass_time(A_DAY - HOUR)
        assert stores.requests.forget(most=9) == 0
        assert isinstance(stores.requests.claim(ASK), StartedImport)
        pass_time(HOUR + A_MOMENT)

        assert stores.requests.forget(most=9) == 1

        assert stores.requests.forget(most=9) == 0
        assert claimed(stores, OTHER).fence == 1

    def test_an_old_key_can_be_used_anew_before_anybody_forgets_it(
        self, stores: Stores, pass_time: Callable[[timedelta], None]
    ):
        first = answered(stores)
        pass_time(A_DAY + A_MOMENT)

        again = answered(stores, OTHER)

        assert again.import_.id == first.import_.id
        assert again.resumed
        assert stores.requests.forget(most=9) == 0
        assert isinstance(stores.requests.claim(OTHER), StartedImport)

    @pytest.mark.parametrize("is_answered", [True, False])
    def test_a_request_with_a_file_is_forgotten_like_any_other(
        self, stores: Stores, pass_time: Callable[[timedelta], None], is_answered
    ):
        """The file is not: see who tidies the spool."""
        if is_answered:
            answered(stores, WITH_FILE, wanted("a"))
        else:
            claimed(stores, WITH_FILE)
        pass_time(A_DAY + A_MOMENT)

        assert stores.requests.forget(most=9) == 1

    def test_only_so_many_are_forgotten_at_a_time(
        self, stores: Stores, pass_time: Callable[[timedelta], None]
    ):
        for key in ("a", "b", "c"):
            claimed(stores, replace(ASK, key=key))
            pass_time(A_MOMENT)
        pass_time(A_DAY)

        assert stores.requests.forget(most=2) == 2
        assert stores.requests.forget(most=2) == 1
