"""Files that clients send, in a folder of the spool."""

import secrets
from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

from typing_extensions import override

from penstock.adapters.csv.spool import Spool, harmless, spool_of
from penstock.domain.dataset import Dataset
from penstock.ports.uploads import Uploads

FOLDER = "uploads"
# what of the client's name stands in ours
LONGEST_LABEL = 60


class SpooledUploads(Uploads):
    @override
    def save(self, dataset: Dataset, pieces: Iterable[bytes], *, label: str) -> str:
        source = dataset.csv
        spool = spool_of(source)
        # random, so that no two imports share a file that one of them may remove
        name = f"{secrets.token_hex(8)}-{harmless(label)[-LONGEST_LABEL:]}"
        saved = spool.save(pieces, dataset=f"{dataset.name}/{FOLDER}", name=name)
        folder = Path(source.folder).absolute()
        # other machines may have the folder elsewhere
        is_below = saved.is_relative_to(folder)
        return str(saved.relative_to(folder) if is_below else saved)

    @override
    def remove(self, dataset: Dataset, file: str) -> None:
        source = dataset.csv
        path = Path(source.folder, file).absolute()
        if path.parent == Path(source.spool, dataset.name, FOLDER).absolute():
            path.unlink(missing_ok=True)

    @override
    def remove_all(self, dataset: str, *, spool: str) -> int:
        files = Spool(Path(spool).absolute(), 0)
        removed = 0
        for place in (f"{dataset}/{FOLDER}", dataset):
            for path in files.idle(place, age=timedelta()):
                files.remove_idle(path, age=timedelta())
                removed += 1
            with suppress(OSError):
                # what is not ours stays in it
                (files.folder / place).rmdir()
        return removed

    @override
    def remove_idle(
        self,
        dataset: Dataset,
        *,
        age: timedelta,
        needed: Callable[[], Iterable[str]],
    ) -> None:
        source = dataset.csv
        spool = spool_of(source)
        kept: set[str] | None = None
        for place in (dataset.name, f"{dataset.name}/{FOLDER}"):
            for path in spool.idle(place, age=age):
                # by their own names: other machines may have the spool elsewhere
                if kept is None:
                    kept = {Path(name).name for name in needed()}
                if path.name not in kept:
                    spool.remove_idle(path, age=age)
