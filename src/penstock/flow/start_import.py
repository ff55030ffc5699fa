"""Begin an import that a client asks for: once, however often it asks."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from penstock.domain.axes import Bounds
from penstock.domain.dataset import Dataset
from penstock.domain.job import Import, ImportId, ImportStatus, Mode
from penstock.domain.parts import Slice
from penstock.domain.scope import Scope
from penstock.domain.shard import split
from penstock.domain.source import CsvSource
from penstock.domain.times import EPOCH
from penstock.errors import (
    Conflict,
    Interrupted,
    Misconfigured,
    NotFound,
    PenstockError,
    StoreUnavailable,
)
from penstock.flow.plan import Plan, refuse_other, until_halted
from penstock.flow.planning import Planning
from penstock.ports import Halt, Redact, StillHere, Stores, Uploads
from penstock.ports.idempotency import Ask, Begun, Claim, Wanted

# how long planning waits for a store that is away, in seconds
REST = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """The import that a client gets."""

    begun: Import
    # it was there already, and unfinished
    resumed: bool
    # the same request was answered before
    replayed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class StartImport:
    plan: Plan
    stores: Stores
    uploads: Uploads
    datasets: Mapping[str, Dataset]
    declaration: Callable[[Dataset], str]
    redact: Redact
    # raises `Misconfigured` where a file of a dataset is missing
    find_files: Callable[[Dataset], object]
    # names whoever plans an import, so that no two do
    new_planner: Callable[[], str]
    monotonic: Callable[[], float] = time.monotonic

    def of_source(self, dataset: Dataset, asked: Scope, ask: Ask) -> Started:
        """Begin an import of what a dataset declares; it has to be planned after.

        Raises `Conflict` where there can be none now.
        """
        claim = self.stores.requests.claim(ask)
        if isinstance(claim, Begun):
            return started(claim, replayed=True)
        with self._given_up_unless_begun(claim), as_conflict(self.redact):
            scope = self.plan.scope(dataset, asked)
            if isinstance(dataset.source, CsvSource):
                # whether they are there is quickly seen; reading may take an hour
                self.find_files(dataset)
            else:
                self.plan.axes(dataset)
            declaration = self.declaration(dataset)

            wanted = Wanted(
                scope=scope,
                declaration=declaration,
                approve=lambda known, _: refuse_other(known, asked, scope, declaration),
            )
            return started(self.stores.requests.begin(claim, dataset, wanted))

    def of_file(
        self, dataset: Dataset, file: str, ask: Ask, halt: Halt | None = None
    ) -> Started:
        """Begin an import of one file that was uploaded; workers may begin at once.

        It adds to what is stored: what it lacks is not missing. Raises `Misconfigured`
        for a file that does not fit the dataset. A file that no import reads is
        removed.
        """
        try:
            begun = self._of_file(dataset, file, ask, until_halted(halt))
        except StoreUnavailable:
            # perhaps it was stored all the same; if not, the spool is tidied some day
            raise
        except BaseException:
            self.uploads.remove(dataset, file)
            raise
        if begun.resumed or begun.replayed:
            self.uploads.remove(dataset, file)
        return begun

    def _of_file(
        self, dataset: Dataset, file: str, ask: Ask, still_here: StillHere
    ) -> Started:
        claim = self.stores.requests.claim(ask)
        if isinstance(claim, Begun):
            return started(claim, replayed=True)
        with self._given_up_unless_begun(claim):
            axes = self.plan.axes(dataset, files=(file,), still_here=still_here)
            shards = split(axes, Bounds(until=EPOCH))
            wanted = Wanted(
                scope=Scope(mode=Mode.BACKFILL),
                declaration=self.declaration(dataset),
                shard_keys=[shard.key for shard in shards],
                approve=lambda known, planned: refuse_other_content(
                    known, planned(), wanted
                ),
            )
            done = self.stores.requests.begin(claim, dataset, wanted)
        count = len(wanted.shard_keys)
        self.plan.tell(done.begun, shards=count, resumed=done.resumed)
        return started(done)

    def go_on(self, import_id: ImportId, halt: Halt) -> None:
        """Plan an import that has begun; what cannot be planned is cancelled.

        Nothing happens while somebody else plans it. Asked to stop, it leaves the rest
        to whoever finds it in `unplanned`.
        """
        planning = Planning(
            import_id,
            self.new_planner(),
            requests=self.stores.requests,
            halt=halt,
            monotonic=self.monotonic,
        )
        while not halt.is_set():
            try:
                self._plan_alone(import_id, planning)
            except StoreUnavailable:
                halt.wait(REST)
            except Interrupted:
                return
            else:
                return

    def _plan_alone(self, import_id: ImportId, planning: Planning) -> None:
        if not planning.take():
            return
        try:
            self._fill_or_cancel(import_id, planning)
        finally:
            with suppress(StoreUnavailable):
                planning.end()

    def _fill_or_cancel(self, import_id: ImportId, planning: Planning) -> None:
        try:
            self._fill(import_id, planning.still_here)
        except (Interrupted, StoreUnavailable):
            raise
        except PenstockError as error:
            # perhaps it went well elsewhere meanwhile
            planning.insist()
            reason = self.redact(f"it could not be planned: {error}")
            self._cancel(import_id, reason)
        except Exception:
            # others would come upon it as well, again and again
            self._cancel(import_id, "it could not be planned: see the log for why")
            raise

    def _cancel(self, import_id: ImportId, reason: str) -> None:
        self.stores.imports.cancel(import_id, reason=reason, only=ImportStatus.PLANNING)

    def _fill(self, import_id: ImportId, still_here: StillHere) -> None:
        known = self.stores.imports.peek(import_id)
        dataset = self.datasets.get(known.dataset)
        is_ours = dataset and known.declaration == self.declaration(dataset)
        if not dataset or not is_ours or known.status is not ImportStatus.PLANNING:
            return
        axes = self.plan.axes(dataset, still_here=still_here)
        self.plan.fill(dataset, known, axes, resumed=False, still_here=still_here)

    @contextmanager
    def _given_up_unless_begun(self, claim: Claim) -> Iterator[None]:
        try:
            yield
        except BaseException:
            with suppress(PenstockError):
                self.stores.requests.give_up(claim)
            raise


def started(begun: Begun, *, replayed: bool = False) -> Started:
    return Started(begun=begun.begun, resumed=begun.resumed, replayed=replayed)


@contextmanager
def as_conflict(redact: Redact) -> Iterator[None]:
    """Tell a client what an operator would be told."""
    try:
        yield
    except NotFound:
        raise
    except Misconfigured as error:
        raise Conflict(redact(str(error))) from error


def refuse_other_content(known: Import, planned: Iterable[str], ours: Wanted) -> None:
    """Refuse to take up an import unless it reads just what came, by another name."""
    is_same = contents(planned) == contents(ours.shard_keys)
    is_alike = is_same and known.declaration == ours.declaration
    if not is_alike or known.status is not ImportStatus.RUNNING:
        raise Conflict(
            f"import {known.id} of {known.dataset!r} ({known.mode}) is unfinished; "
            "let it finish, or cancel it, then send the file again"
        )


def contents(shard_keys: Iterable[str]) -> set[tuple[object, ...]]:
    parts = map(Slice.of_key, shard_keys)
    return {(each.fingerprint, each.size, each.start, each.end) for each in parts}
