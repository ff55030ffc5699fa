"""What a survey of files found, told once to whoever began the import."""

import typer

from penstock.domain.events import Event, FileSurveyed
from penstock.entrypoints.cli.shared import counted
from penstock.ports import Emit
from penstock.settings import Settings


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

    def tell(self) -> None:
        for remark, (first, *others) in self._found.items():
            more = f" and {counted(len(others), 'other file')}" if others else ""
            typer.echo(f"{first}{more}: {remark}", err=True)
