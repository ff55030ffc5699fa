"""Tidy up behind workers that died: dead letters, imports nobody closed."""

from collections.abc import Mapping

from penstock.domain.dataset import Dataset
from penstock.flow.finish import Finish
from penstock.ports import Imports, Jobs


class Sweep:
    def __init__(
        self,
        *,
        datasets: Mapping[str, Dataset],
        jobs: Jobs,
        imports: Imports,
        finish: Finish,
    ) -> None:
        self._datasets = datasets
        self._jobs = jobs
        self._imports = imports
        self._finish = finish

    def __call__(self) -> None:
        """Fail jobs that kill their workers, and close what only lacks its closing."""
        for import_id in self._jobs.sweep():
            known, _ = self._imports.get(import_id)
            dataset = self._datasets.get(known.dataset)
            if dataset is not None:
                self._finish(dataset, import_id)
