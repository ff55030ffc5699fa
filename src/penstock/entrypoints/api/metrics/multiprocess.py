"""Metrics of several processes that serve one socket.

A scrape reaches any one of them. So each writes its metrics into a shared folder every
second, and the one that is scraped returns all of them.
"""

import asyncio
import contextlib
import threading
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec
from prometheus_client import Metric, generate_latest
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample
from typing_extensions import override

from penstock.entrypoints.api.metrics.http_metrics import Metrics

# seconds
WRITE_INTERVAL = 1.0
LABEL = "process"


class MetricSnapshot(msgspec.Struct, array_like=True):
    """A metric as it is written to the shared folder."""

    name: str
    documentation: str
    kind: str
    samples: list[tuple[str, dict[str, str], float]]


encode = msgspec.json.Encoder().encode
decode = msgspec.json.Decoder(list[MetricSnapshot]).decode


class SingleProcessMetrics:
    """The metrics of a process that serves alone."""

    def __init__(self, metrics: Metrics, stores: Collector) -> None:
        self._metrics = metrics
        # read by the process that is scraped, and the same in all of them
        self.stores = stores

    def render(self) -> bytes:
        families = [*self._metrics.families(), *self.stores.collect()]
        return generate_latest(StaticCollector(families))

    async def run(self) -> None:
        """Do nothing: there is no other process to share with."""


class MultiProcessMetrics(SingleProcessMetrics):
    """One of several processes; a replacement takes over its `number`."""

    def __init__(
        self, metrics: Metrics, stores: Collector, folder: Path, number: int
    ) -> None:
        super().__init__(metrics, stores)
        self._folder = folder
        self._number = number
        self._writing = threading.Lock()

    @override
    def render(self) -> bytes:
        self.write()
        found: dict[str, Metric] = {}
        for path in sorted(self._folder.glob("*.json")):
            for snapshot in decode(path.read_bytes()):
                family = found.setdefault(
                    snapshot.name,
                    Metric(snapshot.name, snapshot.documentation, snapshot.kind),
                )
                family.samples += [
                    Sample(name, {**labels, LABEL: path.stem}, value)
                    for name, labels, value in snapshot.samples
                ]
        families = [*found.values(), *self.stores.collect()]
        return generate_latest(StaticCollector(families))

    @override
    async def run(self) -> None:
        """Write the metrics every second."""
        while True:
            # a full disk may have space later
            with contextlib.suppress(OSError):
                await asyncio.to_thread(self.write)
            await asyncio.sleep(WRITE_INTERVAL)

    def write(self) -> None:
        families = [
            MetricSnapshot(
                family.name,
                family.documentation,
                family.type,
                [
                    (sample.name, dict(sample.labels), sample.value)
                    for sample in family.samples
                ],
            )
            for family in self._metrics.families()
        ]
        path = self._folder / f"{self._number}.json"
        # replaced at once, so that readers never see half a file
        draft = path.with_suffix(".draft")
        with self._writing:
            draft.write_bytes(encode(families))
            draft.replace(path)


class StaticCollector(Collector):
    def __init__(self, families: Sequence[Metric]) -> None:
        self._families = families

    @override
    def collect(self) -> Iterable[Metric]:
        return self._families
