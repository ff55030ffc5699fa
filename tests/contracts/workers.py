"""What every store promises of the workers that are there."""

from datetime import timedelta

from penstock.domain.jobs import WorkerId
from penstock.ports import Stores
from tests.support.builders import A_MOMENT, MINUTE

ANN, BEN = WorkerId("ann"), WorkerId("ben")


def announce(
    stores: Stores,
    worker: WorkerId = ANN,
    *,
    region: str | None = None,
    lasting: timedelta = MINUTE,
    **declarations: str,
) -> None:
    stores.workers.announce(
        worker, region=region, declarations=declarations, lasting=lasting
    )


class WorkersContract:
    """Subclasses bring `stores` and `pass_time`."""

    def test_a_worker_is_there_as_it_was_announced(self, stores: Stores):
        announce(stores, ANN, region="eu", poi="d1", shops="d2")

        (found,) = stores.workers.live()

        assert (found.id, found.region) == (ANN, "eu")
        assert found.declarations == {"poi": "d1", "shops": "d2"}
        assert found.started_at == stores.jobs.now()

    def test_a_worker_that_falls_silent_is_gone_after_a_while(
        self, stores: Stores, pass_time
    ):
        announce(stores, ANN, lasting=MINUTE)
        pass_time(MINUTE)
        is_there = [each.id for each in stores.workers.live()]
        pass_time(A_MOMENT)

        assert is_there == [ANN]
        assert stores.workers.live() == []

    def test_a_worker_that_is_announced_again_is_there_longer(
        self, stores: Stores, pass_time
    ):
        announce(stores, ANN, lasting=MINUTE)
        began = stores.jobs.now()
        pass_time(MINUTE)
        announce(stores, ANN, lasting=MINUTE, poi="d2")
        pass_time(MINUTE)

        (found,) = stores.workers.live()

        assert (found.started_at, found.declarations) == (began, {"poi": "d2"})

    def test_a_worker_that_has_ended_is_gone_at_once(self, stores: Stores):
        announce(stores, ANN)
        announce(stores, BEN)

        stores.workers.remove(ANN)
        stores.workers.remove(ANN)

        assert [each.id for each in stores.workers.live()] == [BEN]
