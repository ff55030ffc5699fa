"""Processes that serve one socket tell their metrics together.

A scrape reaches any one of them. So each writes what it counts into a folder that they
share, every second, and whoever is asked tells what stands there.
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

from penstock.entrypoints.api.metrics import Metrics

# seconds
EVERY = 1.0
LABEL = "process"


class Family(msgspec.Struct, array_like=True):
    """What is counted under one name, as it is written."""

    name: str
    told: str
    kind: str
    samples: list[tuple[str, dict[str, str], float]]


encode = msgspec.json.Encoder().encode
decode = msgspec.json.Decoder(list[Family]).decode


class Alone:
    """One process, which tells what it counts."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def told(self) -> bytes:
        return generate_latest(Told([*self._metrics.families()]))

    async def go_on(self) -> None:
        """Nobody has to be told."""


class Colleague(Alone):
    """One of several processes; `number` is its place, which another may take over."""

    def __init__(self, metrics: Metrics, folder: Path, number: int) -> None:
        super().__init__(metrics)
        self._folder = folder
        self._number = number
        self._writing = threading.Lock()

    @override
    def told(self) -> bytes:
        self.write()
        found: dict[str, Metric] = {}
        for path in sorted(self._folder.glob("*.json")):
            for each in decode(path.read_bytes()):
                family = found.setdefault(
                    each.name, Metric(each.name, each.told, each.kind)
                )
                family.samples += [
                    Sample(name, {**labels, LABEL: path.stem}, value)
                    for name, labels, value in each.samples
                ]
        return generate_latest(Told([*found.values()]))

    @override
    async def go_on(self) -> None:
        while True:
            # a folder that is full now may have room later
            with contextlib.suppress(OSError):
                await asyncio.to_thread(self.write)
            await asyncio.sleep(EVERY)

    def write(self) -> None:
        families = [
            Family(
                each.name,
                each.documentation,
                each.type,
                [(one.name, dict(one.labels), one.value) for one in each.samples],
            )
            for each in self._metrics.families()
        ]
        path = self._folder / f"{self._number}.json"
        # whoever reads meanwhile reads the one before
        draft = path.with_suffix(".draft")
        with self._writing:
            draft.write_bytes(encode(families))
            draft.replace(path)


class Told(Collector):
    def __init__(self, families: Sequence[Metric]) -> None:
        self._families = families

    @override
    def collect(self) -> Iterable[Metric]:
        return self._families
