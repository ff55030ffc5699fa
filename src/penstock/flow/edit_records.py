"""Do what clients change: the rules of the dataset, and of the version they mean."""

from collections.abc import Mapping, Sequence

from penstock.domain.dataset import Dataset
from penstock.domain.editing import (
    MOST_FLAWS,
    Drafted,
    Editor,
    Precondition,
    found,
)
from penstock.domain.page import Key, Reason
from penstock.errors import BadRequest, Flaw, RowsRefused
from penstock.ports import Records
from penstock.ports.serving import (
    Current,
    Decide,
    Edits,
    Removal,
    Write,
    Written,
)

MOST_AT_ONCE = 1_000


class EditRecords:
    def __init__(self, edits: Edits, records: Records) -> None:
        self._edits = edits
        self._records = records
        self._editors: dict[str, Editor] = {}

    def editor(self, dataset: Dataset) -> Editor:
        if dataset.name not in self._editors:
            self._editors[dataset.name] = Editor(dataset)
        return self._editors[dataset.name]

    def put(
        self, dataset: Dataset, key: Key, document: object, terms: Precondition
    ) -> Written:
        """Store a record whatever there was."""
        drafted = self.editor(dataset).whole(document, key=key)
        placed = {"": drafted}
        self._hold_references(dataset, placed)

        def decide(current: Mapping[Key, Current]) -> Sequence[Write]:
            meant(terms, current.get(key))
            return [Write(drafted.record, drafted.local)]

        return self._change(dataset, [key], decide, placed)

    def patch(
        self, dataset: Dataset, key: Key, document: object, terms: Precondition
    ) -> Written:
        """Change some fields of a record."""
        editor = self.editor(dataset)
        placed: dict[str, Drafted] = {}

        def decide(current: Mapping[Key, Current]) -> Sequence[Write]:
            known = found(meant(terms, current.get(key)))
            drafted = placed[""] = editor.changed(known.values, document)
            self._hold_references(dataset, placed)
            return [Write(drafted.record, drafted.local)]

        return self._change(dataset, [key], decide, placed)

    def delete(self, dataset: Dataset, key: Key, terms: Precondition) -> Written:
        def decide(current: Mapping[Key, Current]) -> Sequence[Removal]:
            found(meant(terms, current.get(key)))
            return [Removal(key)]

        return self._edits.change(dataset, [key], decide)

    def upsert(self, dataset: Dataset, documents: object) -> Written:
        """Store many records, all or none; the last of a key wins."""
        drafted = self._drafted(dataset, documents)
        placed = {f"/{at}": each for at, each in enumerate(drafted)}
        self._hold_references(dataset, placed)
        by_key = {each.record.key: each for each in drafted}

        def decide(current: Mapping[Key, Current]) -> Sequence[Write]:
            del current
            return [Write(each.record, each.local) for each in by_key.values()]

        return self._change(dataset, [*by_key], decide, placed)

    def _change(
        self,
        dataset: Dataset,
        keys: Sequence[Key],
        decide: Decide,
        placed: Mapping[str, Drafted],
    ) -> Written:
        """Change rows; say which of those in the body the database cannot hold."""
        try:
            return self._edits.change(dataset, keys, decide)
        except RowsRefused as error:
            flaws = [
                Flaw(
                    pointer=f"{at}/{why.field or ''}",
                    code=Reason.UNSTORABLE,
                    detail=why.detail,
                )
                for at, each in placed.items()
                if (why := error.refused.get(each.record.digest)) is not None
            ]
            raise BadRequest(*flaws[:MOST_FLAWS]) from error

    def _drafted(self, dataset: Dataset, documents: object) -> list[Drafted]:
        if not isinstance(documents, list) or not 1 <= len(documents) <= MOST_AT_ONCE:
            told = f"must be a JSON list of 1 to {MOST_AT_ONCE} records"
            raise BadRequest(Flaw(pointer="/", code="type", detail=told))
        editor = self.editor(dataset)
        drafted: list[Drafted] = []
        flaws: list[Flaw] = []
        for at, document in enumerate(documents):
            try:
                drafted.append(editor.whole(document, key=None, at=f"/{at}"))
            except BadRequest as bad:
                flaws.extend(bad.flaws)
            if len(flaws) >= MOST_FLAWS:
                break
        if flaws:
            raise BadRequest(*flaws[:MOST_FLAWS])
        return drafted

    def _hold_references(
        self, dataset: Dataset, drafted: Mapping[str, Drafted]
    ) -> None:
        """Refuse values that the dataset does not have which a field refers to."""
        flaws: list[Flaw] = []
        for name, reference in self.editor(dataset).references.items():
            column = dataset.column(name)
            values = {each.record.values[column] for each in drafted.values()} - {None}
            unknown = set(self._records.unknown(reference, values)) if values else set()
            flaws.extend(
                Flaw(
                    pointer=f"{at}/{name}",
                    code="reference",
                    detail=f"{each.record.values[column]!s} is not in {reference}",
                )
                for at, each in drafted.items()
                if each.record.values[column] in unknown
            )
        if flaws:
            raise BadRequest(*flaws[:MOST_FLAWS])


def meant(terms: Precondition, known: Current | None) -> Current | None:
    """Return a row as it is; refuse one that is not as the client thinks."""
    terms.hold(None if known is None else known.version)
    return known
