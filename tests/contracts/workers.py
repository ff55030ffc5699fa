"""What every store promises of the workers that are there."""

from datetime import timedelta

from penstock.domain.jobs import WorkerId
from penstock.ports import Stores
from penstock.ports.workers import WorkerAnnouncement
from tests.support.builders import (
    A_MOMENT,
    MINUTE,
    SECOND,
    batch,
    claim,
    dataset,
    plan,
    record,
)

ANN, BEN = WorkerId("ann"), WorkerId("ben")


def announce(
    stores: Stores,
    worker: WorkerId = ANN,
    *,
    region: str | None = None,
    lasting: timedelta = MINUTE,
    idle: timedelta | None = None,
    **declarations: str,
) -> None:
    announcement = WorkerAnnouncement(
        id=worker,
        region=region,
        declarations=declarations,
        host="host",
        pid=7,
        version="1.2",
        threads=4,
        idle=idle,
    )
    stores.workers.announce(announcement, lasting=lasting)


class WorkersContract:
    """Subclasses bring `stores` and `pass_time`."""

    def test_a_worker_is_there_as_it_was_announced(self, stores: Stores):
        announce(stores, ANN, region="eu", poi="d1", shops="d2")

        (found,) = stores.workers.live()

        assert (found.id, found.region) == (ANN, "eu")
        assert found.declarations == {"poi": "d1", "shops": "d2"}
        assert found.started_at == stores.jobs.now()
        assert (found.host, found.pid, found.threads) == ("host", 7, 4)
        assert (found.seen_at, found.last_claim_at) == (found.started_at, None)

    def test_a_worker_says_when_it_last_claimed_a_job(self, stores: Stores, pass_time):
        announce(stores, ANN, idle=timedelta(seconds=3))
        claimed_at = stores.jobs.now() - timedelta(seconds=3)
        pass_time(SECOND)
        announce(stores, ANN)

        (found,) = stores.workers.live()

        assert found.last_claim_at == claimed_at
        assert found.seen_at == stores.jobs.now()

    def test_a_worker_has_the_jobs_that_it_leases(self, stores: Stores):
        poi = dataset()
        plan(stores, poi, "a", "b")
        announce(stores, ANN)
        claim(stores, poi, owner=ANN)

        assert [worker.jobs for worker in stores.workers.live()] == [1]

    def test_open_work_is_counted_up_to_a_limit(self, stores: Stores, pass_time):
        poi = dataset()
        plan(stores, poi, *"abcde")
        claim(stores, poi)
        began = stores.jobs.now()
        pass_time(SECOND)

        (work,) = stores.workers.open_work(most=3)

        assert (work.dataset, work.due, work.leased) == ("poi", 3, 1)
        assert work.oldest_at == began
        assert work.page_gaps == []

    def test_the_time_between_pages_is_known(self, stores: Stores, pass_time):
        poi = dataset()
        plan(stores, poi)
        lease = claim(stores, poi)
        for number in range(3):
            lease, _ = stores.ledger.commit_page(poi, lease, batch(record(number)))
            pass_time(SECOND)

        (work,) = stores.workers.open_work(most=3)

        assert work.page_gaps == [SECOND, SECOND]

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

    def test_a_worker_that_has_left_is_known_for_a_day(self, stores: Stores, pass_time):
        announce(stores, ANN, lasting=MINUTE, poi="d1")
        announce(stores, BEN, region="eu", poi="d2")
        pass_time(SECOND)
        stores.workers.remove(BEN)
        now = stores.jobs.now()
        (ben,) = stores.workers.departed()
        pass_time(2 * MINUTE)
        both = sorted(worker.id for worker in stores.workers.departed())
        pass_time(timedelta(days=1))
        announce(stores, WorkerId("cy"))

        assert (ben.id, ben.region, ben.declarations) == (BEN, "eu", {"poi": "d2"})
        assert ben.seen_at == now - SECOND
        assert now - A_MOMENT <= ben.departed_at < now
        assert both == [ANN, BEN]
        assert stores.workers.departed() == []
