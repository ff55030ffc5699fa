"""Close an import: proof, missing rows, watermark, generation."""

from penstock.domain.dataset import Dataset
from penstock.domain.events import ImportFinished
from penstock.domain.jobs import Import, ImportId
from penstock.ports import Emit, Imports


class FinishImport:
    def __init__(self, *, imports: Imports, emit: Emit) -> None:
        self._imports = imports
        self._emit = emit

    def __call__(self, dataset: Dataset, import_id: ImportId) -> None:
        """End the import if no job is open; of concurrent callers only one does it."""
        self._emit_finished(self._imports.close(dataset, import_id, failed=None))

    def fail(self, dataset: Dataset, import_id: ImportId, *, reason: str) -> None:
        """End the import as failed, and cancel its open jobs."""
        self._emit_finished(self._imports.close(dataset, import_id, failed=reason))

    def _emit_finished(self, ended: Import | None) -> None:
        if ended is not None:
            self._emit(
                ImportFinished(
                    import_id=ended.id,
                    dataset=ended.dataset,
                    status=ended.status,
                    proven=ended.proven,
                    counts=ended.counts,
                    note=ended.note,
                )
            )
