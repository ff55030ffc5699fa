"""Changes that clients make: look, decide, write, in one transaction."""

from collections.abc import Callable, Mapping, Sequence

from typing_extensions import override

from penstock.adapters.sql.database import Database, Merged, Transaction
from penstock.adapters.sql.refused import naming_rows
from penstock.adapters.sql.schema import refuse_stale
from penstock.adapters.sql.served import Held
from penstock.adapters.sql.states import to_state
from penstock.domain.dataset import Dataset
from penstock.domain.page import Key
from penstock.ports.serving import (
    Current,
    Decide,
    Edits,
    Removal,
    Write,
    Written,
)


class SqlEdits(Edits):
    def __init__(self, database: Database) -> None:
        self._database = database

    @override
    def change(self, dataset: Dataset, keys: Sequence[Key], decide: Decide) -> Written:
        def storing(
            transaction: Transaction,
        ) -> tuple[Sequence[Write], Callable[[Sequence[Write]], object]]:
            table = transaction.served(dataset)
            held = table.held(keys)
            wanted = decide(live_rows(held))
            writes = [each for each in wanted if isinstance(each, Write)]
            return writes, lambda some: table.store(some, held)

        with naming_rows(self._database, dataset, storing, lambda write: write.record):
            return self._database.write(lambda each: edit(each, dataset, keys, decide))


def live_rows(held: Mapping[Key, Held]) -> Mapping[Key, Current]:
    return {
        key: Current(row.values, row.version)
        for key, row in held.items()
        if not row.is_deleted
    }


def edit(
    transaction: Transaction, dataset: Dataset, keys: Sequence[Key], decide: Decide
) -> Written:
    table = transaction.served(dataset)
    held = table.held(keys)
    live = live_rows(held)
    wanted = decide(live)
    writes = [each for each in wanted if isinstance(each, Write)]
    gone = [each.key for each in wanted if isinstance(each, Removal)]
    written = [each.record.key for each in writes]
    merged = Merged(
        created=[key for key in written if key not in live],
        updated=[key for key in written if key in live],
        deleted=gone,
    )
    table.store(writes, held)
    table.remove(gone)
    transaction.table(dataset).note(merged, import_id=None, publish=True)
    versions = table.versions(written)
    row = transaction.one("get_dataset", dataset=dataset.name)
    if row is None:
        raise LookupError(f"dataset {dataset.name!r} was never prepared")
    refuse_stale(row, dataset)
    return Written(
        created=len(merged.created),
        updated=len(merged.updated),
        deleted=len(merged.deleted),
        versions={key: versions[key] for key in written},
        one=table.one(written[0], dataset.fields) if len(written) == 1 else None,
        state=to_state(row),
    )
