"""Tidy up behind workers that died: dead letters, imports nobody closed."""

from collections.abc import Mapping

from penstock.domain.dataset import Dataset
from penstock.flow.finish import Finish
from penstock.ports import Declarations, Imports, Jobs


class Sweep:
    def __init__(
        self,
        *,
        datasets: Mapping[str, Dataset],
        declarations: Declarations,
        jobs: Jobs,
        imports: Imports,
        finish: Finish,
    ) -> None:
        self._datasets = datasets
        self._declarations = declarations
        self._jobs = jobs
        self._imports = imports
        self._finish = finish

    def __call__(self) -> None:
        """Fail jobs that kill their workers, and close what only lacks its closing."""
        for import_id in self._jobs.sweep():
            known = self._imports.peek(import_id)
            # how it ends is for those to say who know what it was planned under
            if self._declarations.get(known.dataset) == known.declaration:
                self._finish(self._datasets[known.dataset], import_id)
