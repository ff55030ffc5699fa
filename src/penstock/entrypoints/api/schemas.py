"""The shapes of a dataset's records as JSON Schema, drawn from its declared fields.

They say exactly what is accepted: a value that fits is taken, any other is refused.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import date, datetime
from typing import Any, TypeAlias

from penstock.domain.dataset import Dataset, Field, FieldType
from penstock.domain.queries import forms
from penstock.domain.queries.parameters import (
    LONGEST_CHOICES,
    LONGEST_CONDITION,
    LONGEST_VALUE,
)
from penstock.domain.queries.query import Op, field_named
from penstock.domain.text import format_instant

Schema: TypeAlias = Mapping[str, Any]

SMALLEST_INT, LARGEST_INT = -(2**63), 2**63 - 1
COMPARISONS = f"{Op.EQ}|{Op.NE}|{Op.LT}|{Op.LTE}|{Op.GT}|{Op.GTE}"
# all that `str.strip` cuts off, which is not quite what \s means to others
BLANK = r"\t-\r\x1c-\x20\x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"
ANY_TEXT = f"^{forms.TEXT}$"
NOT_BLANK = rf"^{forms.TEXT}[^\x00{BLANK}]{forms.TEXT}$"
NOT_PADDED = rf"^[^\x00{BLANK}]({forms.TEXT}[^\x00{BLANK}])?$"
NOT_EMPTY = r"^[^\x00]+$"
# what Python means by these, others do not know, or mean otherwise
FOREIGN = re.compile(
    r"""\(\?(?:P|\#|\(|>|[aiLmsux-])  # names, comments, conditions, flags
    | \\[AZaNwWbB]                    # other anchors; letters of all scripts
    | [*+?}]\+                        # quantifiers that never give back
    | \{,                             # from none
    | \[\^?\]                         # a bracket that stands for itself
    """,
    re.VERBOSE,
)


def ref(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


# names that others have: parts of the document, and resources beside the datasets
TAKEN = frozenset(
    {
        *("Budget", "Budgets", "Dataset", "Datasets", "Health", "Import", "Imports"),
        *("Job", "Jobs", "Problem", "Problems", "Ready", "Schedule", "Schedules"),
        *("Count", "DatasetDescription", "DatasetList", "Json", "Page"),
        *(f"{kind.capitalize()}Condition" for kind in forms.PATTERNS),
    }
)
READABLE = re.compile(r"[a-z][a-z0-9]*(_[a-z][a-z0-9]*)*")


def schema_name(dataset: str) -> str:
    """Name the records of a dataset as a class: `charging_points`, ChargingPoints."""
    # of other names, two might become the same
    if READABLE.fullmatch(dataset) is None:
        return dataset
    name = pascal(dataset)
    return f"{name}_records" if name in TAKEN else name


def pascal(name: str) -> str:
    return "".join(part.capitalize() for part in name.split("_"))


def record_schemas(dataset: Dataset, name: str) -> Iterator[tuple[str, Schema]]:
    """Yield the shapes of a dataset's records by their names."""
    fields = {each.name: field_schema(each) for each in dataset.fields}
    needed = [each.name for each in dataset.fields if each.required]
    keys = {each: {**fields[each], "readOnly": True} for each in dataset.key}
    others = [each for each in needed if each not in dataset.key]
    yield name, shape(f"A record of {dataset.name}.", fields)
    yield (
        f"{name}Body",
        shape(
            "A whole record; its key stands in the address.",
            {**fields, **keys},
            required=others,
        ),
    )
    yield (
        f"{name}Patch",
        shape("Fields to change; the others stay as they are.", {**fields, **keys}),
    )
    yield f"{name}Row", shape("A whole record.", fields, required=needed)


def shape(
    description: str, properties: Schema, *, required: Sequence[str] = ()
) -> Schema:
    return {
        "type": "object",
        "description": description,
        "properties": properties,
        **({"required": list(required)} if required else {}),
        "additionalProperties": False,
    }


def field_schema(field: Field) -> Schema:
    """Say what a field holds; empty where it is not required."""
    told: dict[str, Any] = {**TYPES[field.type], **dict(bounds(field))}
    if field.choices is not None:
        told["enum"] = [plain(each) for each in field.choices]
    elif field.type is FieldType.TEXT:
        told.update(text_patterns(field))
    if not field.required and field.type is not FieldType.JSON:
        told["type"] = [told["type"], "null"]
        if "enum" in told:
            told["enum"] = [*told["enum"], None]
    if field.default is not None:
        told["default"] = plain(field.default)
    told.update(example_of(field))
    if remarks := ". ".join(remarks_on(field)):
        told["description"] = f"{remarks}."
    return told


TYPES: Mapping[FieldType, Schema] = {
    FieldType.TEXT: {"type": "string"},
    FieldType.INT: {
        "type": "integer",
        "format": "int64",
        "minimum": SMALLEST_INT,
        "maximum": LARGEST_INT,
    },
    FieldType.FLOAT: {"type": "number", "format": "double"},
    FieldType.BOOL: {"type": "boolean"},
    FieldType.DATE: {
        "type": "string",
        "format": "date",
        "pattern": f"^{forms.DAY}$",
    },
    FieldType.TIMESTAMP: {
        "type": "string",
        "format": "date-time",
        "pattern": f"^{forms.WHOLE_INSTANT}$",
    },
    FieldType.JSON: ref("Json"),
}

# any JSON whose texts a database can store
JSON: Schema = {
    "description": "Any JSON; its texts hold no NUL.",
    "anyOf": [
        {"type": ["null", "boolean", "number"]},
        {"type": "string", "pattern": ANY_TEXT},
        {"type": "array", "items": ref("Json")},
        {
            "type": "object",
            "propertyNames": {"pattern": ANY_TEXT},
            "additionalProperties": ref("Json"),
        },
    ],
}


def bounds(field: Field) -> Iterator[tuple[str, Any]]:
    whole = field.type is FieldType.INT
    if field.min is not None:
        yield "minimum", max(field.min, SMALLEST_INT) if whole else field.min
    if field.max is not None:
        yield "maximum", min(field.max, LARGEST_INT) if whole else field.max
    if field.max_length is not None and field.choices is None:
        yield "maxLength", field.max_length


def text_patterns(field: Field) -> Schema:
    """Say what a text may look like, as far as others understand it."""
    wanted = [ANY_TEXT]
    if field.required:
        is_trimmed = field.trim and field.pattern is None
        wanted = [NOT_BLANK if is_trimmed else NOT_EMPTY]
    if field.pattern is not None and is_ecma(field.pattern):
        wanted.append(field.pattern)
    if len(wanted) == 1:
        return {"pattern": wanted[0]}
    return {"allOf": [{"pattern": each} for each in wanted]}


def is_ecma(pattern: str) -> bool:
    """Say whether a pattern means the same to those who read OpenAPI."""
    # what is escaped means itself, and would be taken for something else
    bare = re.sub(r"\\\\|\\\[|\\\(", "", pattern)
    return FOREIGN.search(bare) is None


def example_of(field: Field) -> Schema:
    """Show a value where what a program makes up of the rules is hard to read."""
    if field.choices is not None or field.pattern is not None:
        return {}
    match field.type:
        case FieldType.TEXT:
            return {"examples": [field.name[: field.max_length]]}
        case FieldType.INT:
            return {"examples": [round(within(field, 1))]}
        case FieldType.FLOAT:
            return {"examples": [within(field, 0.5)]}
        case FieldType.TIMESTAMP:
            return {"examples": ["2026-01-31T12:00:00Z"]}
        case FieldType.DATE | FieldType.BOOL | FieldType.JSON:
            return {}


def within(field: Field, value: float) -> float:
    at_least = value if field.min is None else max(value, field.min)
    return at_least if field.max is None else min(at_least, field.max)


def remarks_on(field: Field) -> Iterator[str]:
    if field.local:
        yield "Edited here alone, never touched by an import"
    if field.references is not None:
        yield f"Must be a value of {field.references}"
    if field.pattern is not None and not is_ecma(field.pattern):
        yield f"Must match (in Python) {field.pattern}"


def plain(value: object) -> object:
    """Write a value as JSON has it."""
    if isinstance(value, datetime):
        return format_instant(value)
    return value.isoformat() if isinstance(value, date) else value


def key_parameters(dataset: Dataset) -> list[Schema]:
    """Describe the parts of a key as they stand in an address."""
    return [
        {
            "name": name,
            "in": "path",
            "required": True,
            "schema": key_schema(field_named(dataset, name)),
        }
        for name in dataset.key
    ]


def key_schema(field: Field) -> Schema:
    told = {**TYPES[field.type], **dict(bounds(field))}
    if field.choices is not None:
        return {**told, "enum": [plain(each) for each in field.choices]}
    match field.type:
        case FieldType.TEXT:
            return {"maxLength": LONGEST_VALUE, **told, **key_patterns(field)}
        case FieldType.TIMESTAMP:
            return {**told, "pattern": f"^{forms.INSTANT}$"}
        case FieldType.FLOAT:
            return {"type": "string", "pattern": f"^{forms.NUMBER}$"}
        case FieldType.INT | FieldType.BOOL | FieldType.DATE | FieldType.JSON:
            return told


def key_patterns(field: Field) -> Schema:
    if field.pattern is None and field.trim:
        return {"pattern": NOT_PADDED}
    return text_patterns(field)


def filter_name(kind: FieldType) -> str:
    return f"{pascal(kind)}Condition"


def filter_schemas() -> Iterator[tuple[str, Schema]]:
    """Yield how conditions on fields of each type are written."""
    for kind, value in forms.PATTERNS.items():
        choices = forms.CHOICES if kind is FieldType.TEXT else f"{value}(?:,{value})*"
        ops = f"{COMPARISONS}|{Op.PREFIX}" if kind is FieldType.TEXT else COMPARISONS
        yield (
            filter_name(kind),
            {
                "description": FILTERS_TOLD[kind],
                "anyOf": [
                    {
                        "type": "string",
                        "pattern": rf"^(?:{ops})\.{value}$",
                        "maxLength": LONGEST_CONDITION,
                    },
                    {
                        "type": "string",
                        "pattern": rf"^in\.{choices}$",
                        "maxLength": LONGEST_CHOICES,
                    },
                    {"type": "string", "enum": ["isnull.true", "isnull.false"]},
                ],
            },
        )


FILTERS_TOLD: Mapping[FieldType, str] = {
    FieldType.TEXT: (
        "`operator.value` with eq, ne, lt, lte, gt, gte or prefix; "
        '`in.one,"the, other"` for one of up to 200; `isnull.true` or `isnull.false`.'
    ),
    FieldType.INT: (
        "`operator.value` with eq, ne, lt, lte, gt or gte; `in.1,2,3` for one of up to "
        "200; `isnull.true` or `isnull.false`."
    ),
    FieldType.FLOAT: (
        "`operator.value` with eq, ne, lt, lte, gt or gte; `in.1.5,2` for one of up to "
        "200; `isnull.true` or `isnull.false`."
    ),
    FieldType.BOOL: "`eq.true`, `ne.true` and so on; `isnull.true` or `isnull.false`.",
    FieldType.DATE: (
        "`operator.value` with eq, ne, lt, lte, gt or gte, such as `gte.2026-01-31`; "
        "`in.` with up to 200; `isnull.true` or `isnull.false`."
    ),
    FieldType.TIMESTAMP: (
        "`operator.value` with eq, ne, lt, lte, gt or gte, such as "
        "`lt.2026-01-31T12:00:00Z`; without a clock it is midnight, without a zone "
        "UTC; `in.` with up to 200; `isnull.true` or `isnull.false`."
    ),
}
