"""The files of a plan, each stored with its shards as soon as it was scanned."""

from collections.abc import Mapping, Sequence
from hashlib import blake2b

from typing_extensions import override

from penstock.domain.sharding.axes import FileAxis
from penstock.domain.sharding.parts import Slice
from penstock.domain.sharding.shard import Shard
from penstock.flow.plan_lease import PlanLease
from penstock.ports import Imports, ScannedSlices


class PlannedFiles(ScannedSlices):
    """A planner that is killed leaves the files that it has scanned to the next one."""

    def __init__(self, plan: PlanLease, imports: Imports) -> None:
        self._plan = plan
        self._imports = imports
        self._digest = ""
        self._stored = 0

    @override
    def stored(self, sizes: Mapping[str, int]) -> Mapping[int, Sequence[Slice]]:
        names = "\n".join(f"{size} {name}" for name, size in sizes.items())
        digest = blake2b(names.encode(), digest_size=16).hexdigest()
        self._digest = f"files:{digest}"
        self._stored = self._plan.stored_of(self._digest)
        if not self._stored:
            return {}
        by_file: dict[int, list[Slice]] = {}
        for key in self._imports.shard_keys(self._plan.lease.import_id):
            part = Slice.of_key(key)
            by_file.setdefault(part.number, []).append(part)
        return by_file

    @override
    def add(self, slices: Sequence[Slice]) -> None:
        axes = (FileAxis(),)
        keys = [Shard(axes, (part,)).key for part in slices]
        self._stored += len(keys)
        self._plan.add_shards(keys, digest=self._digest, stored=self._stored)
