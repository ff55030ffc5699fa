"""Settings in, adapters and use cases out: the only file that knows all."""

import importlib
import os
import secrets
import socket
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock import __version__
from penstock.adapters.csv.survey import FileSurvey
from penstock.adapters.csv.uploads import SpooledUploads
from penstock.adapters.sql.stores import Limiter, served_by, stores_of
from penstock.adapters.sqlite.bell import Silence
from penstock.adapters.sqlite.database import Database
from penstock.adapters.sqlite.schema import SqliteSchema
from penstock.domain.access import SharedSecret
from penstock.domain.budget import Budget, without_limit
from penstock.domain.dataset import Dataset
from penstock.domain.job import Import, WorkerId
from penstock.domain.source import CsvSource
from penstock.errors import Misconfigured
from penstock.flow.audit import Audit
from penstock.flow.claims import Claims, Worker
from penstock.flow.duplicates import FindDuplicates
from penstock.flow.finish import Finish
from penstock.flow.import_shard import ImportShard, Patience
from penstock.flow.plan import DryRun, Plan
from penstock.flow.replay import ReplayQuarantine
from penstock.flow.retry import RetryJobs
from penstock.flow.sample import Sample
from penstock.flow.start_import import StartImport
from penstock.flow.sweep import Sweep
from penstock.flow.work import Desk, Terms, Work
from penstock.ports import Declarations, Emit, Facts, Halt, Host, Served, Source, Stores
from penstock.ports.access import Signer, Verifier
from penstock.ports.answers import SharedAnswers
from penstock.ports.limits import SharedRates
from penstock.ports.uploads import Uploads
from penstock.settings import Settings, fingerprint

if TYPE_CHECKING:
    from penstock.adapters.http.client import Client

# SQLite's own name for a database without a file
IN_MEMORY = Path(":memory:")
# to one host, and as many as a worker may have threads
MOST_CONNECTIONS = 64
# how long somebody who only looks waits for a server that does not answer
LONGEST_LOOK = timedelta(seconds=3)

# how long a client may wait for the database
LONGEST_ANSWER = timedelta(seconds=5)

Transform = Callable[[dict[str, Any]], dict[str, Any] | None]


@dataclass(frozen=True)
class Penstock:
    """Everything an entry point can ask for, built once for a process."""

    settings: Settings
    stores: Stores
    emit: Emit

    @cached_property
    def plan(self) -> Plan:
        return Plan(
            datasets=self.settings.datasets,
            imports=self.stores.imports,
            records=self.stores.records,
            survey=FileSurvey(self.emit),
            emit=self.emit,
        )

    @cached_property
    def dry_run(self) -> DryRun:
        return DryRun(self.plan, self.stores.records)

    @cached_property
    def finish(self) -> Finish:
        return Finish(imports=self.stores.imports, emit=self.emit)

    @cached_property
    def sweep(self) -> Sweep:
        return Sweep(
            datasets=self.settings.datasets,
            declarations=self.declarations(self.settings.datasets),
            stores=self.stores,
            finish=self.finish,
            emit=self.emit,
        )

    @cached_property
    def audit(self) -> Audit:
        return Audit(imports=self.stores.imports, jobs=self.stores.jobs)

    @cached_property
    def sample(self) -> Sample:
        return Sample(
            stores=self.stores, plan=self.plan, host=host_of(threading.Event())
        )

    @cached_property
    def replay(self) -> ReplayQuarantine:
        return ReplayQuarantine(records=self.stores.records)

    @cached_property
    def duplicates(self) -> FindDuplicates:
        return FindDuplicates(imports=self.stores.imports, records=self.stores.records)

    @cached_property
    def retry(self) -> RetryJobs:
        return RetryJobs(
            imports=self.stores.imports,
            jobs=self.stores.jobs,
            is_declared=self.is_declared,
        )

    @cached_property
    def start_import(self) -> StartImport:
        return StartImport(
            plan=self.plan,
            stores=self.stores,
            uploads=self.uploads,
            datasets=self.settings.datasets,
            declaration=self.declaration,
            redact=self.settings.redact,
        )

    @cached_property
    def uploads(self) -> Uploads:
        return SpooledUploads()

    def is_declared(self, known: Import) -> bool:
        """Say whether an import was planned under a declaration that still holds."""
        dataset = self.settings.dataset(known.dataset)
        return known.declaration == self.declaration(dataset)

    def declaration(self, dataset: Dataset) -> str:
        """Return the digest by which an unfinished import is recognised."""
        return fingerprint(dataset, redact=self.settings.redact)

    def declarations(self, names: Iterable[str]) -> Declarations:
        return {name: self.declaration(self.settings.dataset(name)) for name in names}

    def budget(self, dataset: Dataset) -> Budget:
        """Return the budget of a dataset; without one it can still be closed."""
        name = dataset.source.budget
        if name is None:
            return without_limit(f"dataset:{dataset.name}")
        return self.settings.budgets[name]

    @property
    def budgets(self) -> Mapping[str, Budget]:
        """The declared budgets, and the nameless ones of datasets without."""
        used = map(self.budget, self.settings.datasets.values())
        return {**self.settings.budgets, **{each.name: each for each in used}}

    def not_stopped(self, names: Iterable[str]) -> list[str]:
        """Leave out datasets whose budget waits for an operator."""
        return [
            name
            for name in names
            if self.stores.budgets.state(
                self.budget(self.settings.dataset(name))
            ).stopped
            is None
        ]

    def source(self, dataset: Dataset) -> Source:
        # loaded where they are used: most of a short command would be loading
        if isinstance(dataset.source, CsvSource):
            from penstock.adapters.csv.source import CsvPages

            return CsvPages(dataset)
        from penstock.adapters.http.source import HttpPages

        return HttpPages(
            dataset,
            stop_on=self.budget(dataset).stop_on,
            redact=self.settings.redact,
            edition=f"{self.declaration(dataset)} {__version__}",
            transform=load_transform(self.settings, dataset),
            client=self._client,
        )

    @cached_property
    def _client(self) -> "Client":
        from penstock.adapters.http.client import Client

        # one pool for all datasets and threads: those of one provider share connections
        return Client(connections=MOST_CONNECTIONS)

    def desks(self, names: Mapping[str, Dataset], host: Host) -> Mapping[str, Desk]:
        """Set up all that is needed to work these datasets; threads share it."""
        return {name: self._desk(dataset, host) for name, dataset in names.items()}

    def claims(self, worker: Worker, host: Host) -> Claims:
        return Claims(worker, ledger=self.stores.ledger, host=host)

    def work(self, desks: Mapping[str, Desk], claims: Claims, host: Host) -> Work:
        terms = Terms(
            lease=self.settings.lease,
            attempts=self.settings.attempts,
            redact=self.settings.redact,
        )
        return Work(
            claims,
            desks=desks,
            stores=self.stores,
            terms=terms,
            finish=self.finish,
            host=host,
            emit=self.emit,
        )

    def _desk(self, dataset: Dataset, host: Host) -> Desk:
        budget = self.budget(dataset)
        return Desk(
            dataset=dataset,
            declaration=self.declaration(dataset),
            budget=budget.name,
            import_shard=ImportShard(
                dataset,
                source=self.source(dataset),
                budget=budget,
                stores=self.stores,
                patience=Patience(
                    lease=self.settings.lease,
                    longest_wait=self.settings.longest_wait,
                    request=dataset.source.timeout,
                    commit=self.settings.commit_timeout,
                ),
                host=host,
                emit=self.emit,
            ),
        )


@contextmanager
def opened(
    settings: Settings, emit: Emit, *, scratch: bool = False, threads: int = 1
) -> Iterator[Penstock]:
    """Connect what the settings name, and close it again.

    A scratch one keeps everything in memory, for those who only look.
    """
    with ExitStack() as stack:
        if scratch:
            stores = sqlite_stores(IN_MEMORY, settings, stack)
        elif settings.sqlite_path is not None:
            stores = sqlite_stores(settings.sqlite_path, settings, stack)
        else:
            stores = postgres_stores(settings, stack, threads=threads)
        yield Penstock(settings=settings, stores=stores, emit=emit)


def sqlite_stores(path: Path, settings: Settings, stack: ExitStack) -> Stores:
    database = Database(path, busy=settings.commit_timeout)
    stack.callback(database.close)
    return stores_of(
        database,
        schema=SqliteSchema(database),
        lease=settings.lease,
        bell=Silence(),
        limiter=None if path is IN_MEMORY else redis_limiter(settings, stack),
    )


def postgres_stores(settings: Settings, stack: ExitStack, *, threads: int) -> Stores:
    # loaded where it is used: most laptops need no server
    from penstock.adapters.postgres.bell import ListeningBell
    from penstock.adapters.postgres.database import Database
    from penstock.adapters.postgres.schema import PostgresSchema

    if settings.postgres_url is None:
        raise Misconfigured("penstock.database: names neither SQLite nor PostgreSQL")
    database = Database(
        settings.postgres_url,
        place=settings.place,
        schema=settings.schema,
        limit=settings.commit_timeout,
        # one for each thread that works, and one for whoever watches them
        most_connections=threads + 1,
    )
    stack.callback(database.close)
    bell = ListeningBell(database.connections.open_one, schema=settings.schema)
    stack.callback(bell.close)
    return stores_of(
        database,
        schema=PostgresSchema(database),
        lease=settings.lease,
        bell=bell,
        limiter=redis_limiter(settings, stack),
    )


@contextmanager
def served(settings: Settings, *, threads: int) -> Iterator[Served]:
    """Open what clients of the API may ask, with connections of its own."""
    with ExitStack() as stack:
        if settings.sqlite_path is not None:
            file = Database(settings.sqlite_path, busy=LONGEST_ANSWER)
            stack.callback(file.close)
            yield served_by(file)
            return
        yield postgres_served(settings, stack, threads=threads)


def postgres_served(settings: Settings, stack: ExitStack, *, threads: int) -> Served:
    from penstock.adapters.postgres.connections import (
        FOR_CLIENTS,
        FOR_CLIENTS_OF_A_REPLICA,
        Manner,
    )
    from penstock.adapters.postgres.database import Database
    from penstock.adapters.postgres.replicas import Replica, Replicated

    def opened(url: str, place: str, manner: Manner) -> Database:
        database = Database(
            url,
            place=place,
            schema=settings.schema,
            limit=LONGEST_ANSWER,
            most_connections=threads,
            manner=manner,
        )
        stack.callback(database.close)
        return database

    primary = opened(settings.postgres_url or "", settings.place, FOR_CLIENTS)
    if not settings.replicas:
        return served_by(primary)
    replicas = [
        Replica(opened(url, f"penstock.replicas[{at}]", FOR_CLIENTS_OF_A_REPLICA))
        for at, url in enumerate(settings.replicas)
    ]
    database = Replicated(primary, replicas)
    return served_by(database, primary=primary, on_news=database.rise)


@contextmanager
def shared_answers(settings: Settings) -> Iterator[SharedAnswers | None]:
    """Open what the processes of the API share, if the settings name a Redis."""
    if settings.redis is None:
        yield None
        return
    from penstock.adapters.redis.answers import RedisAnswers, connect_for_answers

    client = connect_for_answers(settings.redis)
    try:
        yield RedisAnswers(client, namespace=settings.schema)
    finally:
        client.close()


@contextmanager
def shared_rates(settings: Settings) -> Iterator[SharedRates | None]:
    """Open what counts how often clients ask all processes of the API together."""
    if settings.redis is None:
        yield None
        return
    from penstock.adapters.redis.answers import connect_for_answers
    from penstock.adapters.redis.limits import RedisRates

    client = connect_for_answers(settings.redis)
    try:
        yield RedisRates(client, namespace=settings.schema)
    finally:
        client.close()


def redis_limiter(settings: Settings, stack: ExitStack) -> Limiter | None:
    """Return what keeps the budgets in Redis, if the settings name one."""
    if settings.redis is None:
        return None
    from penstock.adapters.redis.budgets import RedisBudgets
    from penstock.adapters.redis.client import connect

    client = connect(settings.redis)
    stack.callback(client.close)
    return lambda lasting: RedisBudgets(client, lasting, namespace=settings.schema)


def facts(settings: Settings, stack: ExitStack) -> Iterator[Facts]:
    """Yield the servers that the settings name, each to be asked about itself."""
    if settings.postgres_url is not None:
        from penstock.adapters.postgres.database import Database
        from penstock.adapters.postgres.facts import PostgresFacts

        database = Database(
            settings.postgres_url,
            place=settings.place,
            schema=settings.schema,
            limit=min(LONGEST_LOOK, settings.commit_timeout),
            most_connections=1,
        )
        stack.callback(database.close)
        yield PostgresFacts(database)
    if settings.redis is not None:
        from penstock.adapters.redis.facts import RedisFacts

        yield RedisFacts(settings.redis)


def verifier_of(settings: Settings) -> Verifier | None:
    """Return what says whose a token is; None where everybody here may ask."""
    if settings.auth is None:
        return None
    from penstock.adapters.jwt import verifier

    return verifier.verifier_of(settings.auth)


def signer_of(settings: Settings) -> Signer:
    """Return what signs tokens, if that is ours to do."""
    auth = settings.auth
    if auth is None:
        raise Misconfigured(
            f"{settings.path}: there is no [auth], so the API serves this machine "
            "only, and asks nobody for a token; to sign tokens, declare [auth] with "
            'issuer, audience and secret = "${PENSTOCK_JWT_SECRET}"'
        )
    if not isinstance(auth.keys, SharedSecret):
        raise Misconfigured(
            f"{settings.path}: auth.jwks: only the issuer can sign; ask "
            f"{auth.issuer!r} for a token with audience {auth.audience!r} and the "
            "scopes that you need (read, write, operate)"
        )
    from penstock.adapters.jwt.signer import JwtSigner

    return JwtSigner(auth, auth.keys)


def logging_emit(settings: Settings, *, as_json: bool, verbose: bool) -> Emit:
    from penstock.adapters.telemetry.log import log_events

    return log_events(redact=settings.redact, as_json=as_json, verbose=verbose)


def new_worker_id() -> WorkerId:
    """Name a worker so that a restart on the same host is another one."""
    return WorkerId(f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}")


def host_of(halt: Halt) -> Host:
    return Host(halt=halt)


def load_transform(settings: Settings, dataset: Dataset) -> Transform | None:
    """Import the function a dataset names; modules beside penstock.toml are found."""
    if dataset.transform is None:
        return None
    module_name, _, function = dataset.transform.partition(":")
    folder = str(settings.path.parent.resolve())
    if folder not in sys.path:
        sys.path.insert(0, folder)
    place = f"datasets.{dataset.name}.transform"
    try:
        found = getattr(importlib.import_module(module_name), function, None)
    except Exception as error:
        raise Misconfigured(
            f"{place}: module {module_name!r} cannot be imported: {error}"
        ) from error
    if not callable(found):
        raise Misconfigured(f"{place}: {module_name!r} has no function {function!r}")
    transform: Transform = found
    return transform
