"""Tidy up behind workers: dead letters, imports nobody closed, indexes to build."""

from collections.abc import Mapping

from penstock.domain.dataset import Dataset
from penstock.flow.finish import Finish
from penstock.ports import Declarations, Stores


class Sweep:
    def __init__(
        self,
        *,
        datasets: Mapping[str, Dataset],
        declarations: Declarations,
        stores: Stores,
        finish: Finish,
    ) -> None:
        self._datasets = datasets
        self._declarations = declarations
        self._schema = stores.schema
        self._jobs = stores.jobs
        self._imports = stores.imports
        self._finish = finish

    def __call__(self) -> None:
        """Fail jobs that kill their workers, close what only lacks its closing, and
        keep the tables fast.
        """  # noqa: D205 (one sentence that needs two lines)
        for import_id in self._jobs.sweep():
            known = self._imports.peek(import_id)
            # how it ends is for those to say who know what it was planned under
            if self._declarations.get(known.dataset) == known.declaration:
                self._finish(self._datasets[known.dataset], import_id)
        for dataset in self._datasets.values():
            self._schema.tend(dataset)
