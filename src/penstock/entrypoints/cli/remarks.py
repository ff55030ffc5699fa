"""What was found before an import began, told once to whoever began it."""

import typer

from penstock.domain.dataset import Dataset
from penstock.domain.events import Event, FileSurveyed
from penstock.entrypoints.cli.shared import counted
from penstock.ports import Emit
from penstock.settings import Settings
from penstock.wiring import Penstock


class Remarks:
    """Listens to a survey; the same remark about many files is one."""

    def __init__(self) -> None:
        # with the files that it is about
        self._found: dict[str, list[str]] = {}

    @property
    def documents(self) -> list[dict[str, object]]:
        found = self._found.items()
        return [{"remark": remark, "files": files} for remark, files in found]

    def listen(self, settings: Settings) -> Emit:
        def hear(event: Event) -> None:
            if isinstance(event, FileSurveyed):
                file = settings.redact(event.file)
                for remark in event.remarks:
                    self._found.setdefault(settings.redact(remark), []).append(file)

        return hear

    def look_at_references(self, penstock: Penstock, dataset: Dataset) -> None:
        """Remark which datasets have to be imported first, or every row is bad."""
        for field in dataset.columns:
            if field.references is None or field.references.dataset == dataset.name:
                continue
            other = penstock.settings.datasets[field.references.dataset]
            if next(penstock.stores.records.rows(other), None) is None:
                told = f"which field {field.name} refers to, has no rows"
                remedy = f"penstock run {other.name} first"
                self._found[f"{other.name}, {told}: {remedy}"] = []

    def tell(self) -> None:
        for remark, files in self._found.items():
            typer.echo(f"{named(files)}{remark}", err=True)


def named(files: list[str]) -> str:
    if not files:
        return ""
    first, *others = files
    more = f" and {counted(len(others), 'other file')}" if others else ""
    return f"{first}{more}: "
