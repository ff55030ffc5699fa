"""Warnings found while an import is planned."""

import typer

from penstock.domain.dataset import Dataset
from penstock.domain.events import Event, FileSurveyed
from penstock.entrypoints.cli.common import counted
from penstock.ports import Emit
from penstock.settings import Settings
from penstock.wiring import Container


class PlanWarnings:
    """Collects the warnings of file scans; the same one about many files is one."""

    def __init__(self) -> None:
        # warning -> the files it is about
        self._files: dict[str, list[str]] = {}

    @property
    def documents(self) -> list[dict[str, object]]:
        return [
            {"remark": warning, "files": files}
            for warning, files in self._files.items()
        ]

    def listen(self, settings: Settings) -> Emit:
        def emit(event: Event) -> None:
            if isinstance(event, FileSurveyed):
                file = settings.redact(event.file)
                for warning in event.warnings:
                    self._files.setdefault(settings.redact(warning), []).append(file)

        return emit

    def check_references(self, penstock: Container, dataset: Dataset) -> None:
        """Warn about referenced datasets without rows: every row would be bad."""
        for field in dataset.columns:
            if field.references is None or field.references.dataset == dataset.name:
                continue
            other = penstock.settings.datasets[field.references.dataset]
            if next(penstock.stores.records.rows(other), None) is None:
                warning = (
                    f"{other.name}, which field {field.name} references, has no rows: "
                    f"penstock run {other.name} first"
                )
                self._files[warning] = []

    def print(self) -> None:
        for warning, files in self._files.items():
            typer.echo(f"{name_files(files)}{warning}", err=True)


def name_files(files: list[str]) -> str:
    if not files:
        return ""
    first, *others = files
    more = f" and {counted(len(others), 'other file')}" if others else ""
    return f"{first}{more}: "
