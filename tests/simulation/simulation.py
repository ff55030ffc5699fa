"""One world of workers, operators and a provider, from one seed."""

import sqlite3
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, cast

from typing_extensions import override

from penstock.adapters.sqlite.ledger import NoNotifier, SqliteLedger
from penstock.adapters.sqlite.schema import SqliteSchema
from penstock.adapters.sqlstore.stores import build_stores
from penstock.domain.events import Event, WorkerFailed
from penstock.domain.import_scope import ImportScope
from penstock.domain.jobs import Import, ImportStatus, JobStatus, Mode, WorkerId
from penstock.domain.sharding.axes import FileAxis
from penstock.errors import LeaseLost, Misconfigured, PenstockError, StoreUnavailable
from penstock.flow.audit import Audit
from penstock.flow.finish_import import FinishImport
from penstock.flow.import_shard import ImportShard
from penstock.flow.job_claimer import JobClaimer, Worker
from penstock.flow.plan import Plan
from penstock.flow.sweep import Sweep
from penstock.flow.work import DatasetRuntime, Work, WorkPolicy
from penstock.ports import (
    Budgets,
    Imports,
    JobFilter,
    Jobs,
    Ledger,
    Plans,
    Records,
    Runtime,
    StopSignal,
    Stores,
)
from tests.simulation.provider import Provider, ProviderSource
from tests.simulation.scenario import CALM, Weather, draw_scenario
from tests.simulation.store import SimulatedDatabase
from tests.simulation.witness import Tally, Witness
from tests.simulation.world import (
    Actor,
    Broken,
    Crashed,
    Ended,
    SimulationFailed,
    World,
    microseconds,
)
from tests.support.builders import claim_plan

# how much virtual time the world gets after the storm to finish its work
PATIENCE = timedelta(minutes=30)
PATIENCE_WITH_QUOTA = timedelta(hours=6)
SECOND = 1_000_000
# how much likelier a fault is where it hurts most
RISK = 6


@dataclass(frozen=True, kw_only=True)
class Sabotage:
    """What is broken on purpose, to see whether the simulation notices."""

    # statement name -> (text, what stands there instead)
    statements: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    without_transactions: bool = False
    # port methods that do nothing
    deaf: frozenset[str] = frozenset()


@dataclass(frozen=True, kw_only=True)
class Outcome:
    trace: str
    tally: Tally


def simulate(seed: int, *, sabotage: Sabotage | None = None) -> Outcome:
    """Run a world to its end; raise `SimulationFailed` if it breaks a promise."""
    return Simulation(seed, sabotage or Sabotage()).run()


class VirtualHalt(StopSignal):
    """The wish to stop, and a sleep in virtual time that may last too long."""

    def __init__(self, world: World, witness: Witness) -> None:
        self._world = world
        self._witness = witness
        self._is_set = False

    def set(self) -> None:
        self._is_set = True

    @override
    def is_set(self) -> bool:
        return self._is_set

    @override
    def wait(self, timeout: float) -> bool:
        if not self._is_set:
            dice = self._world.random
            over = dice.choice([0, 0, 100, 10_000, dice.randrange(300_000)])
            self._world.sleep(round(timeout * 1e6) + 1 + over)
            self._witness.looked()
        return self._is_set


class WatchedPort:
    """A port whose calls take time, fail as the weather wills, and are witnessed."""

    def __init__(self, name: str, inner: object, call: Callable[..., Any]) -> None:
        self._name = name
        self._inner = inner
        self._call = call

    def __getattr__(self, method: str) -> Callable[..., Any]:
        function = getattr(self._inner, method)

        def called(*args: Any, **kwargs: Any) -> Any:
            return self._call(self._name, method, function, args, kwargs)

        return called


class Simulation:
    def __init__(self, seed: int, sabotage: Sabotage) -> None:
        self.world = world = World(seed)
        self.scenario = scenario = draw_scenario(world.random)
        self.witness = Witness(world, scenario)
        self.provider = Provider(world, scenario)
        self.database = SimulatedDatabase(world, sabotage.statements)
        self._deaf = sabotage.deaf
        self._halts: dict[Actor, VirtualHalt] = {}
        self._born = 0
        self.dataset = scenario.dataset
        schema = SqliteSchema(self.database)
        schema.migrate()
        schema.ensure_table(self.dataset)
        self.database.connection.has_transactions = not sabotage.without_transactions
        ledger = SqliteLedger(self.database, lease=scenario.patience.lease)
        self.inner = build_stores(
            self.database,
            schema=schema,
            ledger=ledger,
            notifier=NoNotifier(),
            lease=scenario.patience.lease,
        )
        self.stores = Stores(
            schema=schema,
            imports=cast("Imports", self._watched("imports", self.inner.imports)),
            ledger=cast("Ledger", self._watched("ledger", self.inner.ledger)),
            jobs=cast("Jobs", self._watched("jobs", self.inner.jobs)),
            plans=cast("Plans", self._watched("plans", self.inner.plans)),
            budgets=cast("Budgets", self._watched("budgets", self.inner.budgets)),
            records=cast("Records", self._watched("records", self.inner.records)),
            notifier=self.inner.notifier,
            requests=self.inner.requests,
            workers=self.inner.workers,
            maintenance=self.inner.maintenance,
            schedules=self.inner.schedules,
            fires=self.inner.fires,
            coverage=self.inner.coverage,
            outbox=self.inner.outbox,
            claims=self.inner.claims,
            retention=self.inner.retention,
            rollups=self.inner.rollups,
            feeders=self.inner.feeders,
            archive=self.inner.archive,
            actions=self.inner.actions,
        )
        self.finish = FinishImport(imports=self.stores.imports, emit=self.emit)
        self.plan = self._plan(self.stores)
        self.sweep = Sweep(
            datasets={self.dataset.name: self.dataset},
            declarations={self.dataset.name: "same"},
            stores=self.stores,
            finish=self.finish,
            emit=self.emit,
        )

    def run(self) -> Outcome:
        world = self.world
        for number in range(self.scenario.workers):
            world.spawn(f"worker-{number}", self._worker)
        world.spawn("planner", self._planner)
        world.spawn("operator", self._operator)
        world.spawn("provider", lambda _: self.provider.live(self.scenario))
        try:
            world.run()
            self._verify()
        finally:
            self.database.close()
        return Outcome(trace="\n".join(world.trace), tally=self.witness.tally())

    def _verify(self) -> None:
        self.world.running = None
        audit = Audit(imports=self.inner.imports, jobs=self.inner.jobs)
        try:
            audited = audit(self.dataset, declaration="same")
            self.witness.verify(self.database, self.provider, audited)
        except Broken as broken:
            raise SimulationFailed(
                self.world.seed, str(broken), self.world.trace
            ) from None

    def _plan(self, stores: Stores) -> Plan:
        return Plan(
            datasets={self.dataset.name: self.dataset},
            stores=stores,
            survey=lambda *_: FileAxis(),
            claim=claim_plan(
                stores,
                length=self.scenario.patience.lease,
                monotonic=lambda: self.world.elapsed.total_seconds(),  # noqa: PLW0108 (it changes)
            ),
            emit=self.emit,
        )

    def _watched(self, name: str, inner: object) -> WatchedPort:
        return WatchedPort(name, inner, self._call)

    def emit(self, event: Event) -> None:
        if isinstance(event, WorkerFailed):
            raise Broken(f"a worker met an error that nobody expects: {event.error}")
        if self.world.running is not None:
            self.world.note(f"* {type(event).__name__}")

    @property
    def weather(self) -> Weather:
        is_storm = self.world.elapsed < self.scenario.storm
        return self.scenario.weather if is_storm else CALM

    def step(self, *, risk: int = 1) -> None:
        """Let a little time pass, in which anything may happen to the actor."""
        dice, weather = self.world.random, self.weather
        draw = dice.random() / risk
        if draw < weather.crash:
            self._crash()
        draw -= weather.crash
        if draw < weather.pause:
            self._pause()
            return
        draw -= weather.pause
        if draw < weather.terminate and self.world.me in self._halts:
            self.witness.faults["terminate"] += 1
            self.world.note("! terminate")
            self._halts[self.world.me].set()
        self.world.sleep(self._latency())

    def _pause(self) -> None:
        """Stop for a while, or until somebody took over what we hold."""
        self.witness.hit("pause")
        dice, me = self.world.random, self.world.me
        lease = microseconds(self.scenario.patience.lease)
        if dice.random() < 0.5:
            self.witness.dozing.add(me)
        self.world.sleep(dice.choice([SECOND, lease // 2, 2 * lease, 3 * lease]))
        self.witness.dozing.discard(me)
        self.world.note("goes on")

    def _crash(self) -> None:
        self.witness.hit("crash")
        raise Crashed

    def _latency(self) -> int:
        dice = self.world.random
        draw = dice.random()
        if draw < 0.5:
            return 0
        return dice.randrange(2_000 if draw < 0.9 else 10_000)

    def _call(
        self,
        port: str,
        method: str,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        self.step()
        world, dice, weather = self.world, self.world.random, self.weather
        draw = dice.random()
        if draw < weather.unavailable:
            self.witness.hit("unavailable")
            raise StoreUnavailable("the store does not answer")
        draw -= weather.unavailable
        if draw < weather.torn:
            self._light_fuse()
        draw -= weather.torn
        is_lost = 0 <= draw < weather.lost_reply
        name = f"{port}.{method}"
        self.database.begin_call()
        try:
            result = None if name in self._deaf else function(*args, **kwargs)
        except LeaseLost:
            world.note(f"{name} refused")
            self.witness.refused(lease_of(args))
            self.step()
            raise
        except PenstockError as error:
            world.note(f"{name} {error.code}")
            self.step()
            raise
        finally:
            self.database.connection.fuse = None
        world.note(f"{name} {describe(result)}")
        observe = getattr(self.witness, f"{port}_{method}", None)
        if observe is not None:
            observe(result, *args, **kwargs)
        if name == "ledger.commit_page" and dice.random() < weather.replay:
            self._replay(function, args, kwargs)
        self.step()
        if is_lost:
            self.witness.hit("lost_reply")
            self.witness.lost()
            raise StoreUnavailable("the reply was lost")
        self.witness.looked()
        return result

    def _light_fuse(self) -> None:
        """Let this call's transaction break off in the middle."""
        dice, connection = self.world.random, self.database.connection
        is_crash = dice.random() < 0.5

        def blow() -> None:
            if is_crash:
                self._crash()
            self.witness.hit("torn")
            raise sqlite3.OperationalError("disk I/O error")

        connection.fuse, connection.blow = dice.randint(1, 12), blow

    def _replay(
        self,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> None:
        """Send a call again that has taken effect, as a driver may."""
        self.witness.hit("replay")
        try:
            function(*args, **kwargs)
        except LeaseLost:
            if self.world.random.random() < 0.5:
                raise
        except PenstockError as error:
            raise Broken(f"a page replayed was refused with {error.code}") from error
        else:
            raise Broken("a page replayed was committed again")

    def _worker(self, actor: Actor) -> None:
        """Be one worker after another: a crashed one is replaced after a while."""
        dice = self.world.random
        while True:
            try:
                self._work(actor)
            except Crashed:
                self.database.connection.fuse = None
            self.world.sleep(dice.randrange(30 * SECOND))

    def _work(self, actor: Actor) -> None:
        self._born += 1
        dice = self.world.random
        halt = self._halts[actor] = VirtualHalt(self.world, self.witness)
        host = Runtime(halt=halt, monotonic=self.world.monotonic, jitter=dice.random)
        owner = WorkerId(f"{actor.name}:{self._born}")
        self.witness.reborn()
        self.world.note(f"is born as {owner}")
        work = self._hands(owner, host)
        idle, swept_at = 0.5, self.world.now
        while not halt.is_set():
            try:
                if work():
                    idle = 0.5
                    continue
                if self.world.now - swept_at > 5 * SECOND:
                    swept_at = self.world.now
                    self.sweep()
            except StoreUnavailable:
                halt.wait(1.0)
            halt.wait(idle * (0.5 + dice.random()))
            idle = min(2 * idle, 20.0)
        self.world.note("stops")

    def _hands(self, owner: WorkerId, host: Runtime) -> Work:
        source = ProviderSource(
            self.world,
            self.scenario,
            self.provider,
            step=self.step,
            risky_step=lambda: self.step(risk=RISK),
            weather=lambda: self.weather,
            notice=self.witness,
        )
        import_shard = ImportShard(
            self.dataset,
            source=source,
            budget=self.scenario.budget,
            stores=self.stores,
            patience=self.scenario.patience,
            host=host,
            emit=self.emit,
        )
        runtime = DatasetRuntime(
            dataset=self.dataset,
            declaration="same",
            import_shard=import_shard,
            budget=self.scenario.budget.name,
        )
        return Work(
            JobClaimer(
                Worker(owner=owner),
                ledger=self.stores.ledger,
                host=host,
            ),
            runtimes={self.dataset.name: runtime},
            stores=self.stores,
            policy=WorkPolicy(
                lease=self.scenario.patience.lease, attempts=8, redact=str
            ),
            finish=self.finish,
            host=host,
            emit=self.emit,
        )

    def _planner(self, _: Actor) -> None:
        """Plan an import whenever there is none to work on, until enough are done."""
        never = VirtualHalt(self.world, self.witness)
        while True:
            try:
                newest = self._newest()
                if newest is None or newest.status in {
                    ImportStatus.PLANNING,
                    ImportStatus.CANCELLED,
                    ImportStatus.DONE,
                }:
                    request = ImportScope(mode=Mode.FULL)
                    if self._done() < self.scenario.imports:
                        self.plan(self.dataset, request, declaration="same", halt=never)
            except (StoreUnavailable, Misconfigured, LeaseLost, Crashed):
                # misconfigured or lost: it was cancelled while it was being planned
                self.database.connection.fuse = None
            self.world.sleep(self.world.random.randrange(SECOND, 10 * SECOND))

    def _operator(self, _: Actor) -> None:
        """Look after what workers leave to people, and end the world."""
        dice = self.world.random
        has_quota = any(limit.is_quota for limit in self.scenario.budget.limits)
        patience = PATIENCE_WITH_QUOTA if has_quota else PATIENCE
        while not self._is_quiet():
            self.world.sleep(dice.randrange(SECOND, 20 * SECOND))
            if self.world.elapsed > self.scenario.storm + patience:
                raise Broken(f"not done {patience} after the storm")
            try:
                self._maintain(self._newest())
            except (StoreUnavailable, Misconfigured, Crashed):
                self.database.connection.fuse = None
        self.world.sleep(microseconds(self.scenario.linger))
        raise Ended

    def _maintain(self, newest: Import | None) -> None:
        dice = self.world.random
        if self.witness.is_stopped and dice.random() < 0.5:
            self.stores.budgets.open(self.scenario.budget.name)
        if newest is None:
            return
        if dice.random() < self.weather.cancel:
            self.witness.faults["cancel"] += 1
            self.stores.imports.cancel(newest.id, reason="an operator said so")
            return
        if newest.status in {ImportStatus.RUNNING, ImportStatus.FAILED}:
            self._retry_failed(newest)
        elif self.weather is not CALM and dice.random() < 0.2:
            self._retry_failed(None)
        if dice.random() < 0.3:
            self.sweep()

    def _retry_failed(self, newest: Import | None) -> None:
        wanted = None if newest is None else newest.id
        failed = self.stores.jobs.find(
            JobFilter(import_id=wanted, status=JobStatus.FAILED),
            after=None,
            limit=100,
        )
        for job in failed:
            self.stores.jobs.retry(job.id)

    def _newest(self) -> Import | None:
        found = self.stores.imports.recent(dataset=self.dataset.name, limit=1)
        return found[0][0] if found else None

    def _done(self) -> int:
        row = self.database.connection.execute(
            "select count(*) from penstock_import where status = 'done'"
        ).fetchone()
        return int(row[0])

    def _is_quiet(self) -> bool:
        rows = self.database.connection.execute(
            "select status from penstock_import order by id desc limit 1"
        ).fetchall()
        return self._done() >= self.scenario.imports and rows[0]["status"] == "done"


def lease_of(args: tuple[Any, ...]) -> Any:
    return next(each for each in args if hasattr(each, "fence"))


def describe(result: object) -> str:
    """Describe a result for the trace, in one short text that no run changes."""
    if result is None or isinstance(result, bool | int):
        return str(result)
    for name in ("fence", "slot", "status"):
        if hasattr(result, name):
            return f"{name} {getattr(result, name)}"
    if isinstance(result, tuple) and result and hasattr(result[0], "page_seq"):
        return f"page {result[0].page_seq} fence {result[0].fence}"
    return type(result).__name__
