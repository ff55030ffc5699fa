"""What every store promises of the claim log."""

import secrets
from collections.abc import Callable, Sequence
from datetime import timedelta

import pytest

from penstock.domain.dataset import Dataset
from penstock.domain.import_scope import ImportScope
from penstock.domain.jobs import (
    Claim,
    ClaimOutcome,
    ImportId,
    JobError,
    JobId,
    Lease,
    Mode,
)
from penstock.domain.pages import Proof
from penstock.ports import Stores
from penstock.ports.claims import ClaimBundle, ClaimWindow
from penstock.ports.idempotency import (
    IdempotentRequest,
    ImportSpec,
    RequestClaim,
)
from tests.support.builders import (
    A_MOMENT,
    ANN,
    BEN,
    HOUR,
    LEASE,
    MINUTE,
    SECOND,
    TIMEOUT,
    batch,
    begin,
    claim,
    dataset,
    idle,
    known_page,
    last,
    open_import,
    record,
    repeated,
    run,
)

POI = dataset()

# every way in which a claim ends, with the outcome and the code that are stored
ENDS: dict[
    str, tuple[Callable[[Stores, Lease], object], ClaimOutcome, JobError | None]
] = {
    "done": (
        lambda stores, lease: stores.ledger.commit_page(POI, lease, last()),
        ClaimOutcome.DONE,
        None,
    ),
    "done_with_new_rows": (
        lambda stores, lease: stores.ledger.commit_page(POI, lease, last(record(1))),
        ClaimOutcome.DONE,
        None,
    ),
    "failed": (
        lambda stores, lease: stores.ledger.fail(lease, TIMEOUT),
        ClaimOutcome.FAILED,
        TIMEOUT,
    ),
    "split": (
        lambda stores, lease: stores.ledger.split(lease, ["x", "y"]),
        ClaimOutcome.SPLIT,
        None,
    ),
    "released": (
        lambda stores, lease: stores.ledger.release(lease),
        ClaimOutcome.RELEASED,
        None,
    ),
    "waiting": (
        lambda stores, lease: stores.ledger.postpone(
            lease, None, delay=MINUTE, blame=False
        ),
        ClaimOutcome.WAITING,
        None,
    ),
    "waiting_with_a_reason": (
        lambda stores, lease: stores.ledger.postpone(
            lease, TIMEOUT, delay=MINUTE, blame=False
        ),
        ClaimOutcome.WAITING,
        TIMEOUT,
    ),
    "error": (
        lambda stores, lease: stores.ledger.postpone(
            lease, TIMEOUT, delay=MINUTE, blame=True
        ),
        ClaimOutcome.ERROR,
        TIMEOUT,
    ),
    "cancelled": (
        lambda stores, lease: stores.imports.cancel(lease.import_id, reason="no"),
        ClaimOutcome.CANCELLED,
        None,
    ),
    "closed": (
        lambda stores, lease: stores.imports.close(
            POI, lease.import_id, failed="too many bad rows"
        ),
        ClaimOutcome.CANCELLED,
        None,
    ),
}
every_end = pytest.mark.parametrize(
    ("end", "outcome", "fault"), ENDS.values(), ids=ENDS.keys()
)


def plan(stores: Stores, of: Dataset, *shard_keys: str) -> ImportId:
    """Open an import as an upload does, whose plan nobody has to claim."""
    stores.schema.ensure_table(of)
    request = IdempotentRequest(scope="ann", key=secrets.token_hex(4), digest=b"")
    claimed = stores.requests.claim(request)
    assert isinstance(claimed, RequestClaim)
    spec = ImportSpec(
        scope=ImportScope(mode=Mode.FULL),
        declaration="d1",
        approve=lambda *_: None,
        shard_keys=shard_keys,
    )
    return stores.requests.begin(claimed, of, spec).import_.id


def claims_of(stores: Stores, import_id: ImportId) -> Sequence[Claim]:
    return stores.claims.find(import_id, after=None, limit=100)


class ClaimsContract:
    """Subclasses bring `stores` and `pass_time`."""

    def test_a_claim_is_listed_as_soon_as_it_begins(self, stores: Stores):
        import_id = plan(stores, POI, "a", "b")
        assert claims_of(stores, import_id) == []

        lease = claim(stores, POI)

        (found,) = claims_of(stores, import_id)
        assert (found.job, found.fence, found.owner) == (lease.job, 1, ANN)
        assert (found.shard_key, found.claimed_at) == ("a", stores.jobs.now())
        assert (found.ended_at, found.outcome, found.code) == (None, None, None)

    @every_end
    def test_a_claim_is_stored_with_how_it_ended(
        self, stores: Stores, pass_time, end, outcome, fault
    ):
        import_id = plan(stores, POI, "a")
        began_at = stores.jobs.now()
        lease = claim(stores, POI)
        pass_time(SECOND)

        end(stores, lease)

        (found,) = claims_of(stores, import_id)
        assert (found.claimed_at, found.ended_at) == (began_at, began_at + SECOND)
        assert found.outcome is outcome
        assert found.code == (None if fault is None else fault.code)
        assert (found.owner, found.fence) == (ANN, lease.fence)

    def test_a_claim_that_ends_with_a_known_page_is_stored(self, stores: Stores):
        run(stores, POI, known_page(record(1), proof=Proof.EMPTY_PAGE))
        import_id = plan(stores, POI, "a")

        assert repeated(stores, claim(stores, POI)) is not None

        (found,) = claims_of(stores, import_id)
        assert found.outcome is ClaimOutcome.DONE

    def test_the_claim_of_a_plan_is_the_first_of_an_import(self, stores: Stores):
        stores.schema.ensure_table(POI)
        import_id = begin(stores, POI).id
        open_import(stores, import_id, ["a"])
        claim(stores, POI)

        first, second = claims_of(stores, import_id)

        assert (first.shard_key, first.outcome) == ("plan", ClaimOutcome.DONE)
        assert (second.shard_key, second.outcome) == ("a", None)

    def test_pages_do_not_end_a_claim(self, stores: Stores, pass_time):
        import_id = plan(stores, POI, "a")
        lease = claim(stores, POI)
        for number in range(3):
            pass_time(SECOND)
            lease, _ = stores.ledger.commit_page(POI, lease, batch(record(number)))
            stores.ledger.renew(lease)

        (found,) = claims_of(stores, import_id)
        assert found.outcome is None

    def test_a_lost_claim_ends_when_its_lease_expired(self, stores: Stores, pass_time):
        import_id = plan(stores, POI, "a")
        began_at = stores.jobs.now()
        claim(stores, POI)
        pass_time(LEASE + MINUTE)

        claim(stores, POI, owner=BEN)

        (first, second) = claims_of(stores, import_id)
        assert (first.owner, first.outcome) == (ANN, ClaimOutcome.LOST)
        assert first.ended_at == began_at + LEASE
        assert (second.owner, second.outcome, second.fence) == (BEN, None, 2)

    def test_the_third_lost_claim_of_a_job_is_lost_too(self, stores: Stores, pass_time):
        import_id = plan(stores, POI, "a")
        for _ in range(3):
            claim(stores, POI)
            pass_time(LEASE + A_MOMENT)

        stores.jobs.sweep()

        found = claims_of(stores, import_id)
        assert [entry.outcome for entry in found] == [ClaimOutcome.LOST] * 3
        assert idle(stores, POI)

    def test_claims_are_found_page_by_page(self, stores: Stores, pass_time):
        import_id = plan(stores, POI, "a", "b")
        for _ in range(3):
            stores.ledger.release(claim(stores, POI))
            pass_time(SECOND)
        claim(stores, POI)
        claim(stores, POI)
        everything = claims_of(stores, import_id)

        found: list[Claim] = []
        while page := stores.claims.find(
            import_id, after=found[-1].position if found else None, limit=2
        ):
            found += page

        assert found == everything
        assert len(found) == 5
        assert found == sorted(found, key=lambda entry: entry.position)

    def test_the_last_claims_of_a_job_are_found(self, stores: Stores, pass_time):
        import_id = plan(stores, POI, "a")
        job = claim(stores, POI)
        for _ in range(3):
            pass_time(SECOND)
            stores.ledger.release(job)
            job = claim(stores, POI)
        other = plan(stores, dataset("shops"), "a")
        claim(stores, dataset("shops"))

        found = stores.claims.of_job(job.job, limit=3)

        assert [entry.fence for entry in found] == [2, 3, 4]
        assert [entry.outcome for entry in found] == [
            ClaimOutcome.RELEASED,
            ClaimOutcome.RELEASED,
            None,
        ]
        assert found == claims_of(stores, import_id)[1:]
        assert len(claims_of(stores, other)) == 1

    def test_a_job_that_nobody_has_claimed_has_no_claims(self, stores: Stores):
        import_id = plan(stores, POI, "a", "b")
        first = claim(stores, POI)

        assert stores.claims.of_job(first.job, limit=9) == claims_of(stores, import_id)
        assert stores.claims.of_job(JobId(first.job + 1), limit=9) == []

    def test_the_time_of_the_last_claims_is_found(self, stores: Stores, pass_time):
        import_id = plan(stores, POI, "a", "b")
        assert stores.claims.window(import_id, before=None, most=9) is None
        began_at = stores.jobs.now()
        held = claim(stores, POI)
        for _ in range(3):
            pass_time(SECOND)
            lease = claim(stores, POI, owner=BEN)
            stores.ledger.renew(held)
            pass_time(SECOND)
            stores.ledger.release(lease)

        window = stores.claims.window(import_id, before=None, most=2)
        earlier = stores.claims.window(import_id, before=began_at + SECOND, most=2)

        # that of the held job does not count, however long ago it began
        assert window == ClaimWindow(
            began_at=began_at + 3 * SECOND,
            ended_at=began_at + 6 * SECOND,
            ended=2,
            running=1,
            workers=2,
        )
        assert earlier == ClaimWindow(
            began_at=began_at, ended_at=None, ended=0, running=1, workers=1
        )

    def test_claims_of_a_time_are_found_alone_and_in_bundles(
        self, stores: Stores, pass_time
    ):
        import_id = plan(stores, POI, "a", "b")
        at = stores.jobs.now()
        held = claim(stores, POI)
        for _ in range(6):
            lease = claim(stores, POI, owner=BEN)
            pass_time(SECOND)
            stores.ledger.release(lease)
            stores.ledger.renew(held)
        span = {"began_at": at + 2 * SECOND, "before": at + 6 * SECOND}

        alone = stores.claims.within(import_id, **span, limit=3)
        bundles = stores.claims.bundles(import_id, **span, buckets=2)

        assert [(each.owner, each.claimed_at) for each in alone] == [
            (ANN, at),
            *((BEN, at + n * SECOND) for n in (2, 3, 4)),
        ]
        assert bundles == [
            ClaimBundle(ANN, 0, None, 1, at, None, timedelta(0)),
            ClaimBundle(
                BEN, 0, ClaimOutcome.RELEASED, 2,
                at + 2 * SECOND, at + 4 * SECOND, 2 * SECOND,
            ),
            ClaimBundle(
                BEN, 1, ClaimOutcome.RELEASED, 2,
                at + 4 * SECOND, at + 6 * SECOND, 2 * SECOND,
            ),
        ]  # fmt: skip

    def test_claims_of_other_imports_are_not_found(self, stores: Stores):
        claimed = plan(stores, POI, "a")
        other = plan(stores, dataset("shops"), "a")

        claim(stores, POI)

        assert len(claims_of(stores, claimed)) == 1
        assert claims_of(stores, other) == []

    def test_old_claims_are_forgotten_in_batches(self, stores: Stores, pass_time):
        import_id = plan(stores, POI, "a")
        for _ in range(3):
            stores.ledger.release(claim(stores, POI))
        pass_time(HOUR + SECOND)
        stores.ledger.release(claim(stores, POI))

        forgotten = [
            stores.claims.forget(ended=timedelta(hours=1), most=2) for _ in range(3)
        ]

        assert forgotten == [2, 1, 0]
        assert len(claims_of(stores, import_id)) == 1
