"""Read the declared values out of raw JSON records, and skip everything else.

One `msgspec.Struct` type is built from the declared paths, so undeclared fields are
passed over without building objects. What does not fit that type is read untyped and
walked, which gives the same values; what is not a JSON object is said to be unreadable.
"""

from collections.abc import Callable, Iterable
from operator import attrgetter
from typing import Any, TypeAlias

import msgspec

from penstock.domain.page import Row
from penstock.domain.sheet import Details, RawSheet
from penstock.domain.source import Path
from penstock.domain.text import explain_bad_json

# the steps of a path that are attributes of the type, and the steps that are walked
Cut: TypeAlias = tuple[Path, Path]
Tree: TypeAlias = dict[str, "Tree"]

# msgspec cannot compare names that JSON has to escape
UNNAMEABLE = frozenset('"\\') | frozenset(map(chr, range(32)))
LONGEST_INDEX = 9


class RowReader:
    """The compiled reader of the values at some paths; total on any bytes."""

    def __init__(self, paths: tuple[Path, ...]) -> None:
        self._paths = paths
        self._nothing = (None,) * len(paths)
        cuts = cut_paths(paths)
        self._decode: Callable[[bytes], object]
        self._decode_list: Callable[[bytes], list[Any]] | None = None
        self._rests = tuple(
            (index, rest) for index, (_, rest) in enumerate(cuts) if rest
        )
        stems = [stem for stem, _ in cuts]
        if stems and all(stems):
            tree = grow(stems)
            record = struct_type(tree)
            self._decode = msgspec.json.Decoder(record).decode
            self._decode_list = msgspec.json.Decoder(list[record]).decode  # type: ignore[valid-type]
            self._places = tuple(attribute_names(tree, stem) for stem in stems)
            self._pick = picker(self._places)
        else:
            # the record itself is wanted, or nothing of it: no type can help
            self._decode = msgspec.json.Decoder(dict[str, Any]).decode
            self._places = ()
            self._pick = self._walk_all

    def read_sheet(self, text: bytes, details: Details) -> RawSheet | None:
        """Read the list of records of a page at once, if all fit the type."""
        if self._decode_list is None:
            return None
        try:
            rows = [*map(self._pick, self._decode_list(text))]
        except (ValueError, RecursionError, AttributeError):
            return None
        if self._rests:
            rows = [*map(self._walk_rests, rows)]
        return RawSheet([*zip(*rows, strict=True)], details) if rows else None

    def read_all(self, raws: Iterable[bytes]) -> list[Row]:
        """Read the records of a page, in order."""
        read = self.read
        return [read(raw, position) for position, raw in enumerate(raws)]

    def read(self, raw: bytes, position: int) -> Row:
        """Read one record; whatever it is, a row comes out."""
        try:
            record = self._decode(raw)
        except (ValueError, RecursionError):
            return self._read_untyped(raw, position)
        try:
            values = self._pick(record)
        except AttributeError:
            # a null stands where the paths go on
            values = tuple([follow(record, names) for names in self._places])
        if self._rests and self._places:
            values = self._walk_rests(values)
        return Row(values, raw, position)

    def _read_untyped(self, raw: bytes, position: int) -> Row:
        record = decode_object(raw)
        if isinstance(record, str):
            return Row(self._nothing, raw, position, record)
        return Row(self._walk_all(record), raw, position)

    def _walk_all(self, record: object) -> tuple[object, ...]:
        return tuple([walk(record, path) for path in self._paths])

    def _walk_rests(self, values: tuple[object, ...]) -> tuple[object, ...]:
        walked = list(values)
        for index, rest in self._rests:
            walked[index] = walk(walked[index], rest)
        return tuple(walked)


def decode_object(raw: bytes) -> dict[str, Any] | str:
    """Read a record untyped, or say why it cannot be read."""
    try:
        record = msgspec.json.decode(raw)
    except RecursionError:
        return "the record is nested too deeply"
    except ValueError as error:
        return f"the record is not JSON: {explain_bad_json(raw, str(error))}"
    if not isinstance(record, dict):
        return f"the record is {kind(record)}, not an object"
    return record


def kind(value: object) -> str:
    """Name what a JSON value is."""
    if value is None:
        return "null"
    names = {dict: "an object", list: "a list", str: "a text", bool: "a truth value"}
    return names.get(type(value), "a number")


def walk(value: object, path: Path) -> object:
    """Follow a path through objects and lists; None where it leads nowhere."""
    for step in path:
        if isinstance(value, dict):
            value = value.get(step)
        elif isinstance(value, list) and is_index(step) and int(step) < len(value):
            value = value[int(step)]
        else:
            return None
    return value


def is_index(step: str) -> bool:
    """Tell a step that may count the elements of a list."""
    return step.isascii() and step.isdigit() and len(step) <= LONGEST_INDEX


def cut_paths(paths: tuple[Path, ...]) -> list[Cut]:
    """Part each path where the type has to stop and walking begins."""
    stems = {typed_part(path) for path in paths}
    cuts = []
    for path in paths:
        longest = typed_part(path)
        # a stem that is also inside another is a value of its own: stop there
        starts = (longest[:length] for length in range(len(longest) + 1))
        stem = next(start for start in starts if start in stems)
        cuts.append((stem, path[len(stem) :]))
    return cuts


def typed_part(path: Path) -> Path:
    for length, step in enumerate(path):
        if is_index(step) or not is_nameable(step):
            return path[:length]
    return path


def is_nameable(step: str) -> bool:
    return UNNAMEABLE.isdisjoint(step) and step.isprintable()


def grow(stems: Iterable[Path]) -> Tree:
    tree: Tree = {}
    for stem in stems:
        node = tree
        for step in stem:
            node = node.setdefault(step, {})
    return tree


def struct_type(tree: Tree) -> type[msgspec.Struct]:
    """Build the type that has exactly these fields, each of them optional."""
    # JSON names need not be identifiers, so attributes are numbered and renamed
    fields: list[tuple[str, Any, Any]] = []
    for index, below in enumerate(tree.values()):
        if below:
            node = struct_type(below)
            default = msgspec.field(default_factory=node)
            fields.append((f"f{index}", node | None, default))
        else:
            fields.append((f"f{index}", Any, None))
    names = {f"f{index}": step for index, step in enumerate(tree)}
    return msgspec.defstruct("Raw", fields, rename=names, gc=False)


def attribute_names(tree: Tree, stem: Path) -> tuple[str, ...]:
    names = []
    for step in stem:
        names.append(f"f{list(tree).index(step)}")
        tree = tree[step]
    return tuple(names)


def picker(
    places: tuple[tuple[str, ...], ...],
) -> Callable[[Any], tuple[object, ...]]:
    """Return the function that takes the values out of a typed record."""
    if places == tuple((f"f{index}",) for index in range(len(places))):
        # all of its values, in their order
        return msgspec.structs.astuple
    dotted = [".".join(names) for names in places]
    get = attrgetter(*dotted)
    if len(dotted) == 1:
        return lambda record: (get(record),)
    return get


def follow(record: object, names: tuple[str, ...]) -> object:
    for name in names:
        if record is None:
            return None
        record = getattr(record, name)
    return record
