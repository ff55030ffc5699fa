"""Values of every type, drawn with how they are written and how they are stored.

What is stored is written here a second time, by other means than those of the mapping,
so that the two can be compared character by character.
"""

import json
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from math import isfinite
from random import Random
from typing import TypeAlias

from penstock.domain.dataset import FieldType

# what separates, quotes, escapes, is trimmed, is taken for something else, or is long
CHARACTERS = [
    *"ab \t,;|\"'\\\n\r/0-+.{}[]:%$",
    *("é", "ß", "\u0301", "\u00a0", "\u2028", "\u200b", "\ufeff", "\x01", "\x1f"),
    *("\x7f", "\x85", "\ufffe", "🦔", "\U0010ffff", "漢", "\u202e", "\u0661"),
]
WORDS = ["NULL", "null", "\\N", "007", "1.10", "true", "nan", "=1+1", '""', "\r\n"]
SHORT_ESCAPES = {"\n": "\\n", "\r": "\\r", "\t": "\\t", '"': '\\"', "\\": "\\\\"}
TRUE, FALSE = ["true", "Yes", "y", "T", "1"], ["false", "NO", "n", "f", "0"]


@dataclass(frozen=True)
class WrittenValue:
    """One value: as a cell of a file, as JSON, and as SQLite stores it."""

    cell: str
    body: str
    stored: str | int | float | None


NOTHING = WrittenValue("", "null", None)
WrittenRow: TypeAlias = dict[FieldType, WrittenValue]


def draw_rows(chance: Random, count: int) -> list[WrittenRow]:
    """Draw rows whose columns are converted as a whole, or value by value.

    One value that is not as the others of its column makes it go the longer way.
    """
    is_plain = {kind: chance.random() < 0.5 for kind in FieldType}
    return [
        {kind: draw_value(chance, kind, is_plain=is_plain[kind]) for kind in FieldType}
        for _ in range(count)
    ]


def draw_value(chance: Random, kind: FieldType, *, is_plain: bool) -> WrittenValue:
    if not is_plain:
        return NOTHING if chance.random() < 0.1 else DRAWN[kind](chance)
    while True:
        value = DRAWN[kind](chance)
        if PLAIN.get(kind, is_unquoted)(value):
            return value


def is_unquoted(value: WrittenValue) -> bool:
    return not value.body.startswith('"')


def draw_string(chance: Random) -> WrittenValue:
    if chance.random() < 0.1:
        number = draw_float(chance).cell
        return WrittenValue(number, number, number)
    text = draw_text(chance) or "x"
    return WrittenValue(text, write_string(chance, text), text)


def draw_bool(chance: Random) -> WrittenValue:
    is_true = chance.random() < 0.5
    word = chance.choice(TRUE if is_true else FALSE)
    body = chance.choice([str(is_true).lower(), f'"{word}"'])
    return WrittenValue(word, body, int(is_true))


def draw_date(chance: Random) -> WrittenValue:
    text = seconds_of(draw_instant(chance), "T").partition("T")[0]
    return WrittenValue(text, f'"{text}"', text)


def draw_json(chance: Random) -> WrittenValue:
    sent, stored = draw_document(chance, depth=3)
    return WrittenValue(sent, sent, None if stored == "null" else stored)


def draw_text(chance: Random) -> str:
    if chance.random() < 0.2:
        return chance.choice(WORDS)
    return "".join(chance.choices(CHARACTERS, k=chance.choice([0, 1, 2, 5, 20])))


def write_string(chance: Random, text: str) -> str:
    """Write a string of JSON, with escapes where there need be none."""
    parts = []
    for each in text:
        if chance.random() < 0.1:
            raw = each.encode("utf-16-be")
            units = struct.unpack(f">{len(raw) // 2}H", raw)
            parts.append("".join(f"\\u{unit:04x}" for unit in units))
        else:
            parts.append(escape(each))
    return f'"{"".join(parts)}"'


def escape(character: str) -> str:
    """Write a character of a string of JSON, escaped only if it must be."""
    if character in SHORT_ESCAPES:
        return SHORT_ESCAPES[character]
    return f"\\u{ord(character):04x}" if character < " " else character


def draw_int(chance: Random) -> WrittenValue:
    number = chance.choice(
        [
            *(0, -1, 2**53 + 1, 2**63 - 1, -(2**63)),
            *(chance.randint(-999, 999), chance.randint(-(2**63), 2**63 - 1)),
        ]
    )
    text = str(number)
    padded = f"00{text}" if number >= 0 else f"-00{text[1:]}"
    cell = chance.choice(
        [text, padded, f" {text} ", f"+{text}" if number >= 0 else text]
    )
    return WrittenValue(cell, chance.choice([text, json.dumps(cell)]), number)


def draw_float(chance: Random) -> WrittenValue:
    number = float("inf")
    while not isfinite(number):
        (number,) = struct.unpack("<d", chance.randbytes(8))
    number = chance.choice([number, 0.0, 0.1, 5e-324, 1.7976931348623157e308, 2.0**53])
    # both have all the digits that tell it apart
    text = chance.choice([repr(number), f"{number:.16e}", f"{number:.16E}"])
    return WrittenValue(text, chance.choice([text, f'"{text}"']), number)


def draw_decimal(chance: Random) -> WrittenValue:
    whole = str(chance.randrange(10 ** chance.choice([1, 3, 20, 250])))
    fraction = "".join(
        chance.choices("0123456789", k=chance.choice([0, 1, 2, 30, 250]))
    )
    text = f"{whole}.{fraction}" if fraction else whole
    if chance.random() < 0.5 and text.strip("0."):
        text = f"-{text}"
    return WrittenValue(text, chance.choice([text, f'"{text}"']), text)


def draw_instant(chance: Random) -> datetime:
    return datetime(2, 1, 1, tzinfo=UTC) + timedelta(
        days=chance.randrange(3_650_000), microseconds=chance.randrange(86_400 * 10**6)
    )


def draw_timestamp(chance: Random) -> WrittenValue:
    instant = draw_instant(chance)
    digits = chance.randint(0, 6)
    instant -= timedelta(microseconds=instant.microsecond % 10 ** (6 - digits))
    minutes = chance.choice([0, 120, -330, 14 * 60, chance.randint(-839, 839)])
    local = instant.astimezone(timezone(timedelta(minutes=minutes)))
    fraction = f".{local.microsecond:06}"[: digits + 1] if digits else ""
    hours, rest = divmod(abs(minutes), 60)
    zone = f"{'-' if minutes < 0 else '+'}{hours:02}:{rest:02}"
    if not minutes and chance.random() < 0.8:
        zone = "Z"
    text = f"{seconds_of(local, chance.choice('T '))}{fraction}{zone}"
    stored = f"{seconds_of(instant, 'T')}.{instant.microsecond:06}Z"
    return WrittenValue(text, f'"{text}"', stored)


def seconds_of(at: datetime, between: str) -> str:
    return (
        f"{at.year:04}-{at.month:02}-{at.day:02}{between}"
        f"{at.hour:02}:{at.minute:02}:{at.second:02}"
    )


def draw_document(chance: Random, *, depth: int) -> tuple[str, str]:
    """Draw JSON as it is sent, and as it is stored: in order and without spaces."""
    kinds = ["string", "number", "word", *["list", "object"] * bool(depth)]
    match chance.choice(kinds):
        case "string":
            text = draw_text(chance)
            return write_string(chance, text), f'"{"".join(map(escape, text))}"'
        case "number":
            number = draw_number(chance)
            return number, number
        case "word":
            word = chance.choice(["null", "true", "false"])
            return word, word
        case "list":
            items = [
                draw_document(chance, depth=depth - 1)
                for _ in range(chance.randint(0, 3))
            ]
            sent = spaced(chance, ",").join(text for text, _ in items)
            return f"[ {sent}]", f"[{','.join(text for _, text in items)}]"
        case _:
            names = {draw_text(chance) for _ in range(chance.randint(0, 3))}
            members = [
                (name, *draw_document(chance, depth=depth - 1))
                for name in sorted(names)
            ]
            stored = ",".join(
                f'"{"".join(map(escape, name))}":{text}' for name, _, text in members
            )
            chance.shuffle(members)
            sent = spaced(chance, ",").join(
                f"{write_string(chance, name)}{spaced(chance, ':')}{text}"
                for name, text, _ in members
            )
            return f"{{{sent} }}", f"{{{stored}}}"


def draw_number(chance: Random) -> str:
    """Draw a number of JSON, with digits and exponents that no float has."""
    plain = [chance.randint(-9, 9), chance.randint(-(10**30), 10**30), chance.random()]
    fraction = "".join(chance.choices("0123456789", k=chance.choice([1, 2, 30])))
    exponent = chance.choice(["", "e5", "E5", "e+05", "E-7", "e-999", "e00"])
    text = f"{chance.randint(-999, 999)}.{fraction}{exponent}"
    whole = f"{chance.randint(-999, 999)}{chance.choice(['e5', 'E+20', 'e-400'])}"
    zero = chance.choice(["-0.0", "0.00", "-0e0"])
    big = f"12345678901234567890.{fraction}"
    return chance.choice([repr(chance.choice(plain)), text, whole, zero, big])


def spaced(chance: Random, sign: str) -> str:
    return chance.choice(["", " ", "\n\t"]) + sign + chance.choice(["", " ", "\r\n"])


DRAWN: Mapping[FieldType, Callable[[Random], WrittenValue]] = {
    FieldType.TEXT: draw_string,
    FieldType.INT: draw_int,
    FieldType.FLOAT: draw_float,
    FieldType.DECIMAL: draw_decimal,
    FieldType.BOOL: draw_bool,
    FieldType.DATE: draw_date,
    FieldType.TIMESTAMP: draw_timestamp,
    FieldType.JSON: draw_json,
}
PLAIN: Mapping[FieldType, Callable[[WrittenValue], bool]] = {
    FieldType.TEXT: lambda value: bool(value.cell.strip()) and not is_unquoted(value),
    FieldType.DATE: lambda _: True,
    FieldType.TIMESTAMP: lambda value: value.cell.endswith("Z"),
}
