"""Apply the edits of clients, under the dataset's rules and their preconditions."""

from collections.abc import Mapping, Sequence

from penstock.domain.dataset import Dataset
from penstock.domain.pages import Key, Reason
from penstock.domain.record_validation import (
    MAX_FIELD_ERRORS,
    Precondition,
    RecordDraft,
    RecordValidator,
    require_record,
)
from penstock.errors import BadRequest, FieldError, RowsRefused
from penstock.ports import Records
from penstock.ports.record_access import (
    Decide,
    LockedRow,
    RecordWriter,
    Removal,
    Write,
    WriteResult,
)

MAX_RECORDS_PER_REQUEST = 1_000


class EditRecords:
    def __init__(self, edits: RecordWriter, records: Records) -> None:
        self._edits = edits
        self._records = records
        self._validators: dict[str, RecordValidator] = {}

    def validator(self, dataset: Dataset) -> RecordValidator:
        if dataset.name not in self._validators:
            self._validators[dataset.name] = RecordValidator(dataset)
        return self._validators[dataset.name]

    def put(
        self, dataset: Dataset, key: Key, document: object, terms: Precondition
    ) -> WriteResult:
        """Store a whole record, new or replaced."""
        draft = self.validator(dataset).validate_full(document, key=key)
        by_pointer = {"": draft}
        self._check_references(dataset, by_pointer)

        def decide(current: Mapping[Key, LockedRow]) -> Sequence[Write]:
            check_precondition(terms, current.get(key))
            return [Write(draft.record, draft.local)]

        return self._change(dataset, [key], decide, by_pointer)

    def patch(
        self, dataset: Dataset, key: Key, document: object, terms: Precondition
    ) -> WriteResult:
        """Change some fields of a record."""
        validator = self.validator(dataset)
        by_pointer: dict[str, RecordDraft] = {}

        def decide(current: Mapping[Key, LockedRow]) -> Sequence[Write]:
            row = require_record(check_precondition(terms, current.get(key)))
            draft = by_pointer[""] = validator.validate_patch(row.values, document)
            self._check_references(dataset, by_pointer)
            return [Write(draft.record, draft.local)]

        return self._change(dataset, [key], decide, by_pointer)

    def delete(self, dataset: Dataset, key: Key, terms: Precondition) -> WriteResult:
        def decide(current: Mapping[Key, LockedRow]) -> Sequence[Removal]:
            require_record(check_precondition(terms, current.get(key)))
            return [Removal(key)]

        return self._edits.change(dataset, [key], decide)

    def upsert(self, dataset: Dataset, documents: object) -> WriteResult:
        """Store many records, all or none; the last of a key wins."""
        drafts = self._parse_drafts(dataset, documents)
        by_pointer = {f"/{index}": draft for index, draft in enumerate(drafts)}
        self._check_references(dataset, by_pointer)
        by_key = {draft.record.key: draft for draft in drafts}

        def decide(current: Mapping[Key, LockedRow]) -> Sequence[Write]:
            del current
            return [Write(draft.record, draft.local) for draft in by_key.values()]

        return self._change(dataset, [*by_key], decide, by_pointer)

    def _change(
        self,
        dataset: Dataset,
        keys: Sequence[Key],
        decide: Decide,
        by_pointer: Mapping[str, RecordDraft],
    ) -> WriteResult:
        """Change rows; raise `BadRequest` for those that the database cannot store."""
        try:
            return self._edits.change(dataset, keys, decide)
        except RowsRefused as error:
            flaws = [
                FieldError(
                    pointer=f"{pointer}/{reason.field or ''}",
                    code=Reason.UNSTORABLE,
                    detail=reason.detail,
                )
                for pointer, draft in by_pointer.items()
                if (reason := error.refused.get(draft.record.digest)) is not None
            ]
            raise BadRequest(*flaws[:MAX_FIELD_ERRORS]) from error

    def _parse_drafts(self, dataset: Dataset, documents: object) -> list[RecordDraft]:
        if (
            not isinstance(documents, list)
            or not 1 <= len(documents) <= MAX_RECORDS_PER_REQUEST
        ):
            detail = f"must be a JSON list of 1 to {MAX_RECORDS_PER_REQUEST} records"
            raise BadRequest(FieldError(pointer="/", code="type", detail=detail))
        validator = self.validator(dataset)
        drafts: list[RecordDraft] = []
        flaws: list[FieldError] = []
        for index, document in enumerate(documents):
            try:
                drafts.append(
                    validator.validate_full(document, key=None, at=f"/{index}")
                )
            except BadRequest as bad:
                flaws.extend(bad.flaws)
            if len(flaws) >= MAX_FIELD_ERRORS:
                break
        if flaws:
            raise BadRequest(*flaws[:MAX_FIELD_ERRORS])
        return drafts

    def _check_references(
        self, dataset: Dataset, drafts: Mapping[str, RecordDraft]
    ) -> None:
        """Reject values that the referenced dataset does not have."""
        flaws: list[FieldError] = []
        for name, reference in self.validator(dataset).references.items():
            column = dataset.column(name)
            values = {draft.record.values[column] for draft in drafts.values()} - {None}
            unknown = set(self._records.unknown(reference, values)) if values else set()
            flaws.extend(
                FieldError(
                    pointer=f"{pointer}/{name}",
                    code="reference",
                    detail=f"{draft.record.values[column]!s} is not in {reference}",
                )
                for pointer, draft in drafts.items()
                if draft.record.values[column] in unknown
            )
        if flaws:
            raise BadRequest(*flaws[:MAX_FIELD_ERRORS])


def check_precondition(terms: Precondition, row: LockedRow | None) -> LockedRow | None:
    """Return the row if the precondition of the client holds, else raise."""
    terms.check(None if row is None else row.version)
    return row
