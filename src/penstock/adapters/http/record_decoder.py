"""Decode the declared values of raw JSON records, and skip everything else.

One `msgspec.Struct` type is built from the declared paths, so undeclared fields are
skipped without building objects. What does not fit that type is decoded untyped, with
the same values; what is not a JSON object is reported as unreadable.

Numbers with a point or an exponent are floats, which have fewer digits than their text
may have. Where that matters they are decoded once more, with their text.
"""

import json
import re
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, TypeAlias

import msgspec

from penstock.domain.dataset import Dataset, FieldType
from penstock.domain.formats import explain_bad_json
from penstock.domain.mapping.columnar import ColumnarRows, RowDetails
from penstock.domain.mapping.written_numbers import WrittenNumber, loses_digits
from penstock.domain.pages import RawRow
from penstock.domain.source import Path

# the steps of a path that are attributes of the type, and the remaining steps
PathSplit: TypeAlias = tuple[Path, Path]
Tree: TypeAlias = dict[str, "Tree"]

# msgspec cannot compare names that JSON has to escape
UNNAMEABLE = frozenset('"\\') | frozenset(map(chr, range(32)))
MAX_INDEX_DIGITS = 9

# Looking for repeated names costs more than all else that is done with a record, so it
# is done with these of a page, and with the others where one of these has them.
NAME_SAMPLES = 8

# all that JSON has, but no float: that raises, and the page is decoded with its texts
NO_FLOAT = str | int | bool | list[Any] | dict[str, Any] | None
# a number with fewer of these characters, and no large exponent, loses no digits
DIGITS_AS_ZEROS = bytes(
    ord("0") if chr(byte) in "0123456789." else ord(" ") for byte in range(256)
)
MANY_DIGITS = b"0" * 16
# each begins with a literal, which is fast to find
SMALL_EXPONENTS = (re.compile(rb"e-[0-9]{3}"), re.compile(rb"E-[0-9]{3}"))


@dataclass(frozen=True, slots=True)
class NumberPaths:
    """The paths whose numbers must not lose digits."""

    # of texts, integers, decimals and positions: never read as floats
    exact: frozenset[Path] = frozenset()
    # of floats: read as such where no digits are lost
    floats: frozenset[Path] = frozenset()
    # of documents: their numbers are stored as they are written
    documents: frozenset[Path] = frozenset()

    @classmethod
    def of(cls, dataset: Dataset) -> "NumberPaths":
        def paths_of(*types: FieldType) -> frozenset[Path]:
            return frozenset(
                column.path for column in dataset.read_columns if column.type in types
            )

        exact = paths_of(FieldType.TEXT, FieldType.INT, FieldType.DECIMAL)
        if dataset.http.pages.field is not None:
            # the next page is requested from the last of them
            exact |= {dataset.http.pages.field}
        floats = paths_of(FieldType.FLOAT) - exact
        return cls(exact, floats, paths_of(FieldType.JSON))

    def can_be_separated(self, inner: Collection[Path]) -> bool:
        """Return whether no path has numbers of two kinds, some within others."""
        if self.documents:
            return not inner and self.documents.isdisjoint(self.exact | self.floats)
        return (self.exact | self.floats).isdisjoint(inner)


class RepeatedName(ValueError):
    """An object has two values of one name: neither may be taken for the value."""

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(name)


class RecordDecoder:
    """The compiled decoder of the values at some paths; never raises, on any bytes."""

    def __init__(
        self, paths: tuple[Path, ...], numbers: NumberPaths | None = None
    ) -> None:
        self._paths = paths
        numbers = numbers or NumberPaths()
        self._no_values = (None,) * len(paths)
        splits = split_paths(paths)
        self._decode: Callable[[bytes], object]
        self._decode_list: Callable[[bytes], list[Any]] | None = None
        self._remainders = tuple(
            (index, remainder)
            for index, (_, remainder) in enumerate(splits)
            if remainder
        )
        stems = [stem for stem, _ in splits]
        self._floats = NO_FLOATS
        self._documents: Sequence[int] = ()
        self._decode_fast: Callable[[bytes], list[Any]] | None = None
        if stems and all(stems):
            tree = build_tree(stems)
            record = struct_type(tree)
            self._decode = written_decoder(record)
            self._decode_list = written_decoder(list[record])  # type: ignore[valid-type]
            self._attributes = tuple(attribute_names(tree, stem) for stem in stems)
            self._pick = build_picker(self._attributes)
            inner = {paths[index] for index, _ in self._remainders}
            if numbers.can_be_separated(inner):
                quick = struct_type(tree, numbers)
                self._decode_fast = msgspec.json.Decoder(list[quick]).decode  # type: ignore[valid-type]
                self._floats = FloatTexts(paths, numbers.floats)
                self._documents = [
                    index
                    for index, path in enumerate(paths)
                    if path in numbers.documents
                ]
        else:
            # the record itself is declared, or nothing of it: a type would not help
            self._decode = written_decoder(dict[str, Any])
            self._attributes = ()
            self._pick = self._read_untyped_values

    def read_columns(self, text: bytes, details: RowDetails) -> ColumnarRows | None:
        """Decode the records of a page at once; None if one does not fit the type."""
        if self._decode_list is None:
            return None
        try:
            columns = self._decode_columns(text, self._decode_list)
        except (ValueError, RecursionError, AttributeError):
            return None
        return ColumnarRows(columns, details) if columns else None

    def _decode_columns(
        self, text: bytes, decode_written: Callable[[bytes], list[Any]]
    ) -> Sequence[Sequence[Any]]:
        if self._decode_fast is not None:
            try:
                columns = self._to_columns(self._decode_fast(text))
                columns = decode_documents(columns, self._documents)
            except msgspec.ValidationError:
                pass
            else:
                return self._floats.restore(columns, text)
        columns = self._to_columns(decode_written(text))
        # the next pages will have floats in texts and integers, too
        self._decode_fast = None
        return columns

    def _to_columns(self, records: list[Any]) -> Sequence[Sequence[Any]]:
        rows = [*map(self._pick, records)]
        if self._remainders:
            rows = [*map(self._follow_remainders, rows)]
        return [*zip(*rows, strict=True)]

    def read_all(
        self, raws: Iterable[bytes], *, check_names: bool = False
    ) -> list[RawRow]:
        """Decode the records of a page, in order."""
        read = self.read_with_names if check_names else self.read
        return [read(raw, position) for position, raw in enumerate(raws)]

    def read_with_names(self, raw: bytes, position: int) -> RawRow:
        """Decode one record, which is unreadable if it has a name twice."""
        name = find_repeated_name(raw)
        if name is None:
            return self.read(raw, position)
        reason = f"the record has the name {name!r} twice in one object"
        return RawRow(self._no_values, raw, position, reason)

    def read(self, raw: bytes, position: int) -> RawRow:
        """Decode one record; whatever it is, a row is returned."""
        try:
            record = self._decode(raw)
        except (ValueError, RecursionError):
            return self._read_untyped(raw, position)
        try:
            values = self._pick(record)
        except AttributeError:
            # a null where a path continues
            values = tuple(
                [read_attributes(record, names) for names in self._attributes]
            )
        if self._remainders and self._attributes:
            values = self._follow_remainders(values)
        return RawRow(values, raw, position)

    def _read_untyped(self, raw: bytes, position: int) -> RawRow:
        record = decode_object(raw)
        if isinstance(record, str):
            return RawRow(self._no_values, raw, position, record)
        return RawRow(self._read_untyped_values(record), raw, position)

    def _read_untyped_values(self, record: object) -> tuple[object, ...]:
        return tuple([value_at_path(record, path) for path in self._paths])

    def _follow_remainders(self, values: tuple[object, ...]) -> tuple[object, ...]:
        completed = list(values)
        for index, remainder in self._remainders:
            completed[index] = value_at_path(completed[index], remainder)
        return tuple(completed)


class FloatTexts:
    """Finds the floats of a page that may have lost digits, and gives them a text."""

    def __init__(self, paths: tuple[Path, ...], floats: Collection[Path]) -> None:
        self._indexes = [index for index, path in enumerate(paths) if path in floats]
        if self._indexes:
            stems = [paths[index] for index in self._indexes]
            tree = build_tree(stems)
            record = struct_type(tree)
            self._decode = msgspec.json.Decoder(
                list[record],  # type: ignore[valid-type]
                float_hook=str,
            ).decode
            self._pick = build_picker(
                tuple(attribute_names(tree, stem) for stem in stems)
            )

    def restore(
        self, columns: Sequence[Sequence[Any]], text: bytes
    ) -> Sequence[Sequence[Any]]:
        """Return the columns of a page with the texts of numbers that lose digits."""
        if not self._indexes or not has_long_numbers(text):
            return columns
        restored = [*columns]
        texts = zip(*map(self._pick, self._decode(text)), strict=True)
        for index, written in zip(self._indexes, texts, strict=False):
            restored[index] = restore_texts(columns[index], written)
        return restored


NO_FLOATS = FloatTexts((), ())


def has_long_numbers(text: bytes) -> bool:
    """Return whether JSON may have numbers that lose digits as floats."""
    return MANY_DIGITS in text.translate(DIGITS_AS_ZEROS) or any(
        exponent.search(text) for exponent in SMALL_EXPONENTS
    )


def restore_texts(numbers: Sequence[Any], texts: Sequence[Any]) -> Sequence[Any]:
    try:
        # the shortest texts of all floats, at a fifth of the cost of repr()
        if msgspec.json.encode(numbers) == f"[{','.join(texts)}]".encode():
            return numbers
    except TypeError:
        # missing values, and integers
        pass
    return [
        WrittenNumber(text)
        if type(number) is float and loses_digits(text, number)
        else number
        for number, text in zip(numbers, texts, strict=True)
    ]


def written_decoder(type_: Any) -> Callable[[bytes], Any]:
    """Return a decoder whose floats have the text that they were written as."""
    return msgspec.json.Decoder(type_, float_hook=WrittenNumber).decode


decode_written = written_decoder(Any)


def decode_documents(
    columns: Sequence[Sequence[Any]], documents: Sequence[int]
) -> Sequence[Sequence[Any]]:
    """Return columns whose documents, still undecoded, have their numbers' texts."""
    if not documents:
        return columns
    decoded = [*columns]
    for index in documents:
        decoded[index] = [
            None if raw is None else decode_written(raw) for raw in columns[index]
        ]
    return decoded


def find_repeated_name(raw: bytes) -> str | None:
    """Return a name that an object of a record has twice."""

    def check(pairs: list[tuple[str, None]]) -> None:
        if len(dict(pairs)) < len(pairs):
            names = [name for name, _ in pairs]
            raise RepeatedName(next(name for name in names if names.count(name) > 1))

    try:
        json.loads(raw, object_pairs_hook=check, parse_int=str, parse_float=str)
    except RepeatedName as repeated:
        return repeated.name
    except (ValueError, RecursionError):
        # unreadable for another reason, which its reader reports
        return None
    return None


def sample_repeats_names(raws: Sequence[bytes]) -> bool:
    """Return whether one of some records, the first and the last included, does."""
    last = len(raws) - 1
    samples = {last * step // (NAME_SAMPLES - 1) for step in range(NAME_SAMPLES)}
    return last >= 0 and any(
        find_repeated_name(raws[position]) is not None for position in samples
    )


def decode_object(raw: bytes) -> dict[str, Any] | str:
    """Decode a record untyped, or return why it cannot be decoded."""
    try:
        record = decode_written(raw)
    except RecursionError:
        return "the record is nested too deeply"
    except ValueError as error:
        return f"the record is not JSON: {explain_bad_json(raw, str(error))}"
    if not isinstance(record, dict):
        return f"the record is {kind(record)}, not an object"
    return record


def kind(value: object) -> str:
    """Name the type of a JSON value."""
    if value is None:
        return "null"
    names = {dict: "an object", list: "a list", str: "a string", bool: "a boolean"}
    return names.get(type(value), "a number")


def value_at_path(value: object, path: Path) -> object:
    """Return the value at a path of objects and lists; None if there is none."""
    for step in path:
        if isinstance(value, dict):
            value = value.get(step)
        elif isinstance(value, list) and is_index(step) and int(step) < len(value):
            value = value[int(step)]
        else:
            return None
    return value


def is_index(step: str) -> bool:
    """Return whether a step may be an index of a list."""
    return step.isascii() and step.isdigit() and len(step) <= MAX_INDEX_DIGITS


def split_paths(paths: tuple[Path, ...]) -> list[PathSplit]:
    """Split each path where the type has to stop."""
    stems = {typed_prefix(path) for path in paths}
    splits = []
    for path in paths:
        typed = typed_prefix(path)
        # a stem that is also a prefix of another is a value of its own: stop there
        prefixes = (typed[:length] for length in range(len(typed) + 1))
        stem = next(prefix for prefix in prefixes if prefix in stems)
        splits.append((stem, path[len(stem) :]))
    return splits


def typed_prefix(path: Path) -> Path:
    for length, step in enumerate(path):
        if is_index(step) or not is_nameable(step):
            return path[:length]
    return path


def is_nameable(step: str) -> bool:
    return UNNAMEABLE.isdisjoint(step) and step.isprintable()


def build_tree(stems: Iterable[Path]) -> Tree:
    tree: Tree = {}
    for stem in stems:
        node = tree
        for step in stem:
            node = node.setdefault(step, {})
    return tree


def struct_type(
    tree: Tree, numbers: NumberPaths | None = None, *, above: Path = ()
) -> type[msgspec.Struct]:
    """Build the type that has exactly these fields, each of them optional."""
    # JSON names need not be identifiers, so attributes are numbered and renamed
    fields: list[tuple[str, Any, Any]] = []
    for index, (step, subtree) in enumerate(tree.items()):
        path = (*above, step)
        if subtree:
            node = struct_type(subtree, numbers, above=path)
            default = msgspec.field(default_factory=node)
            fields.append((f"f{index}", node | None, default))
        else:
            fields.append((f"f{index}", leaf_type(path, numbers), None))
    names = {f"f{index}": step for index, step in enumerate(tree)}
    return msgspec.defstruct("Raw", fields, rename=names, gc=False)


def leaf_type(path: Path, numbers: NumberPaths | None) -> Any:
    if numbers is None:
        return Any
    if path in numbers.documents:
        # only their numbers need the slower decoder
        return msgspec.Raw
    return NO_FLOAT if path in numbers.exact else Any


def attribute_names(tree: Tree, stem: Path) -> tuple[str, ...]:
    names = []
    for step in stem:
        names.append(f"f{list(tree).index(step)}")
        tree = tree[step]
    return tuple(names)


def build_picker(
    attributes: tuple[tuple[str, ...], ...],
) -> Callable[[Any], tuple[object, ...]]:
    """Return the function that reads the values of a typed record."""
    if attributes == tuple((f"f{index}",) for index in range(len(attributes))):
        # all fields, in order
        return msgspec.structs.astuple
    dotted = [".".join(names) for names in attributes]
    get = attrgetter(*dotted)
    if len(dotted) == 1:
        return lambda record: (get(record),)
    return get


def read_attributes(record: object, names: tuple[str, ...]) -> object:
    for name in names:
        if record is None:
            return None
        record = getattr(record, name)
    return record
