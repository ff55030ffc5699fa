"""JSON Schemas of the records of a dataset, built from its declared fields.

They are exact: a value that is valid by the schema is accepted, any other is refused.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import date, datetime
from decimal import Decimal
from typing import Any, TypeAlias

from penstock.domain.dataset import Dataset, Field, FieldType
from penstock.domain.exact_decimals import MAX_FRACTION_DIGITS, MAX_WHOLE_DIGITS
from penstock.domain.formats import format_instant
from penstock.domain.record_validation import as_written
from penstock.domain.search import value_syntax
from penstock.domain.search.filter_params import (
    MAX_CONDITION_LENGTH,
    MAX_IN_LENGTH,
    MAX_KEY_PART_LENGTH,
)
from penstock.domain.search.query import Op, field_named

Schema: TypeAlias = Mapping[str, Any]

MIN_INT, MAX_INT = -(2**63), 2**63 - 1
# beyond the digits before the point that a decimal has
DECIMAL_LIMIT = float(f"1e{MAX_WHOLE_DIGITS}")
COMPARISONS = f"{Op.EQ}|{Op.NE}|{Op.LT}|{Op.LTE}|{Op.GT}|{Op.GTE}"
# all that `str.strip` removes, which is not quite what \s means in ECMAScript
BLANK = r"\t-\r\x1c-\x20\x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"
ANY_TEXT = f"^{value_syntax.TEXT}$"
NOT_BLANK = rf"^{value_syntax.TEXT}[^\x00{BLANK}]{value_syntax.TEXT}$"
NOT_PADDED = rf"^[^\x00{BLANK}]({value_syntax.TEXT}[^\x00{BLANK}])?$"
NOT_EMPTY = r"^[^\x00]+$"
# syntax of Python's that ECMAScript lacks, or understands differently
PYTHON_ONLY = re.compile(
    r"""\(\?(?:P|\#|\(|>|[aiLmsux-])  # names, comments, conditions, flags
    | \\[AZaNwWbB]                    # other anchors; letters of all scripts
    | [*+?}]\+                        # possessive quantifiers
    | \{,                             # no lower bound
    | \[\^?\]                         # a literal bracket
    """,
    re.VERBOSE,
)


def ref(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


class NamedSchema(dict[str, Any]):
    """A schema that the document has as a component, under its name."""

    def __init__(self, name: str, schema: Schema) -> None:
        super().__init__(schema)
        self.name = name


# names of other components, and of resources other than datasets
RESERVED_NAMES = frozenset(
    {
        *("Budget", "BudgetLimit", "BudgetList", "Budgets", "Dataset", "Datasets"),
        *("Health", "Import", "ImportDetails", "ImportList", "Imports", "Progress"),
        *("RecordCounts", "RegionDemand", "RetriedJobs", "Scaling", "ShardCounts"),
        *("Job", "JobDetails", "JobError", "JobList", "Jobs", "Problem", "Problems"),
        *("Ready", "Schedule", "Schedules", "StartedImport", "Waiting", "Worker"),
        *("NewSchedule", "ScheduleChange", "ScheduleDetails", "ScheduledImport"),
        *("ScheduleFire", "ScheduleFireList", "ScheduleList", "WorkerList", "Workers"),
        *("Count", "DatasetDescription", "DatasetList", "Page", "PageOfIds"),
        *("BadRows", "Draft", "Drafts", "FileFacts", "FilePreview", "SampleCheck"),
        *(f"{kind.capitalize()}Condition" for kind in value_syntax.PATTERNS),
    }
)
# components of a dataset have its name and one of these
SUFFIXES = ("Body", "Change", "ChangeList", "List", "Patch", "Row", "Written")
READABLE = re.compile(r"[a-z][a-z0-9]*(_[a-z][a-z0-9]*)*")


def schema_name(dataset: str) -> str:
    """Return the name of a dataset's component: ChargingPoints of `charging_points`."""
    # two other names might become the same
    if READABLE.fullmatch(dataset) is None:
        return dataset
    name = pascal_case(dataset)
    is_taken = name in RESERVED_NAMES or name.endswith(SUFFIXES)
    return f"{name}_records" if is_taken else name


def pascal_case(name: str) -> str:
    return "".join(part.capitalize() for part in name.split("_"))


def record_schemas(dataset: Dataset, name: str) -> Iterator[tuple[str, Schema]]:
    """Yield the names and schemas of the components for a dataset's records."""
    read = {field.name: without_default(field) for field in dataset.fields}
    yield name, record_object(f"A record of {dataset.name}.", read)
    written = [as_written(field) for field in dataset.fields]
    fields = {field.name: field_schema(field) for field in written}
    required = [field.name for field in written if field.required]
    changed = {field.name: without_default(field) for field in written}
    keys = {key: {**fields[key], "readOnly": True} for key in dataset.key}
    others = [field for field in required if field not in dataset.key]
    yield (
        f"{name}Body",
        record_object(
            "A complete record; its key is in the path.",
            {**fields, **keys},
            required=others,
        ),
    )
    yield (
        f"{name}Patch",
        record_object(
            "Fields to change; the others stay unchanged.", {**changed, **keys}
        ),
    )
    yield f"{name}Row", record_object("A complete record.", fields, required=required)


def record_object(
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
    """Return the schema of a field; null is valid if it is not required."""
    schema: dict[str, Any] = {**TYPES[field.type], **dict(bounds(field))}
    if field.choices is not None:
        schema = choice_schema(field, schema)
    elif field.type is FieldType.TEXT:
        schema.update(text_patterns(field))
    if not field.required and schema.keys() & {"enum", "anyOf", "allOf"}:
        # of an enum with null in it, generators of clients make several types
        schema = {"anyOf": [*schema.get("anyOf", [schema]), {"type": "null"}]}
    elif not field.required and field.type is not FieldType.JSON:
        schema["type"] = [schema["type"], "null"]
    if field.default is not None:
        schema["default"] = to_json_value(field.default)
    schema.update(example_of(field))
    if notes := ". ".join(field_notes(field)):
        schema["description"] = f"{notes}."
    return schema


def choice_schema(field: Field, schema: Schema) -> dict[str, Any]:
    choices = [to_json_value(choice) for choice in field.choices or ()]
    if field.type in {FieldType.FLOAT, FieldType.DECIMAL, FieldType.BOOL}:
        # no language has enums of them, and openapi-python-client leaves out all that
        # refers to one
        return {"anyOf": [{"type": schema["type"], "const": each} for each in choices]}
    return {**schema, "enum": choices}


def without_default(field: Field) -> Schema:
    """Return the schema of a field that is absent where it has not been requested.

    Generated clients fill in defaults: in a patch, they would overwrite the record.
    """
    return field_schema(replace(field, default=None))


TYPES: Mapping[FieldType, Schema] = {
    FieldType.TEXT: {"type": "string"},
    FieldType.INT: {
        "type": "integer",
        "format": "int64",
        "minimum": MIN_INT,
        "maximum": MAX_INT,
    },
    FieldType.FLOAT: {"type": "number", "format": "double"},
    FieldType.DECIMAL: {
        "type": "number",
        "exclusiveMinimum": -DECIMAL_LIMIT,
        "exclusiveMaximum": DECIMAL_LIMIT,
    },
    FieldType.BOOL: {"type": "boolean"},
    FieldType.DATE: {
        "type": "string",
        "format": "date",
        "pattern": f"^{value_syntax.DAY}$",
    },
    FieldType.TIMESTAMP: {
        "type": "string",
        "format": "date-time",
        "pattern": f"^{value_syntax.WHOLE_INSTANT}$",
    },
    # a schema that refers to itself, for strings without NUL, breaks generated clients
    FieldType.JSON: {},
}


def bounds(field: Field) -> Iterator[tuple[str, Any]]:
    is_int = field.type is FieldType.INT
    if field.min is not None:
        low = to_json_value(field.min)
        yield "minimum", max(field.min, MIN_INT) if is_int else low
    if field.max is not None:
        high = to_json_value(field.max)
        yield "maximum", min(field.max, MAX_INT) if is_int else high
    if field.max_length is not None and field.choices is None:
        yield "maxLength", field.max_length


def text_patterns(field: Field) -> Schema:
    """Return the patterns of a text, as far as ECMAScript can express them."""
    patterns = [ANY_TEXT]
    if field.required:
        is_trimmed = field.trim and field.pattern is None
        patterns = [NOT_BLANK if is_trimmed else NOT_EMPTY]
    if field.pattern is not None and is_ecma(field.pattern):
        patterns.append(field.pattern)
    first, *others = patterns
    if not others:
        return {"pattern": first}
    # hey-api takes a schema without a type for a value of any type
    typed = [{"type": "string", "pattern": pattern} for pattern in others]
    return {"pattern": first, "allOf": typed}


def is_ecma(pattern: str) -> bool:
    """Return whether a pattern means the same in Python and ECMAScript."""
    # escaped characters are literal, and would be taken for syntax
    bare = re.sub(r"\\\\|\\\[|\\\(", "", pattern)
    return PYTHON_ONLY.search(bare) is None


def example_of(field: Field) -> Schema:
    """Return an example where a value generated from the schema is hard to read."""
    if field.choices is not None or field.pattern is not None:
        return {}
    match field.type:
        case FieldType.TEXT:
            return {"examples": [field.name[: field.max_length]]}
        case FieldType.INT:
            return {"examples": [round(clamp(field, 1))]}
        case FieldType.FLOAT | FieldType.DECIMAL:
            return {"examples": [clamp(field, 0.5)]}
        case FieldType.TIMESTAMP:
            return {"examples": ["2026-01-31T12:00:00Z"]}
        case FieldType.DATE | FieldType.BOOL | FieldType.JSON:
            return {}


def clamp(field: Field, value: float) -> float:
    at_least = value if field.min is None else max(value, float(field.min))
    return at_least if field.max is None else min(at_least, float(field.max))


def field_notes(field: Field) -> Iterator[str]:
    if field.type is FieldType.JSON:
        yield "Any JSON; its strings contain no NUL"
    if field.type is FieldType.DECIMAL:
        yield (
            "Exact: keeps all of its digits, up to "
            f"{MAX_WHOLE_DIGITS} before and {MAX_FRACTION_DIGITS} after the point"
        )
    if field.local:
        yield "Edited only here, never changed by an import"
    if field.is_row_key:
        yield "The hash of the other fields: other values are another record"
    if field.references is not None:
        yield f"Must be a value of {field.references}"
    if field.pattern is not None and not is_ecma(field.pattern):
        yield f"Must match (in Python) {field.pattern}"


def to_json_value(value: object) -> object:
    if isinstance(value, datetime):
        return format_instant(value)
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    return value.isoformat() if isinstance(value, date) else value


def key_parameters(dataset: Dataset) -> list[Schema]:
    """Describe the parts of a key in a path."""
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
    schema = {**TYPES[field.type], **dict(bounds(field))}
    if field.choices is not None:
        return choice_schema(field, schema)
    match field.type:
        case FieldType.TEXT:
            return {"maxLength": MAX_KEY_PART_LENGTH, **schema, **key_patterns(field)}
        case FieldType.TIMESTAMP:
            return {**schema, "pattern": f"^{value_syntax.INSTANT}$"}
        case FieldType.FLOAT | FieldType.DECIMAL:
            pattern = value_syntax.PATTERNS[field.type]
            return {"type": "string", "pattern": f"^{pattern}$"}
        case FieldType.INT | FieldType.BOOL | FieldType.DATE | FieldType.JSON:
            return schema


def key_patterns(field: Field) -> Schema:
    if field.pattern is None and field.trim:
        return {"pattern": NOT_PADDED}
    return text_patterns(field)


def filter_name(kind: FieldType) -> str:
    return f"{pascal_case(kind)}Condition"


def filter_schemas() -> Iterator[tuple[str, Schema]]:
    """Yield the names and schemas of conditions, by the type of the field."""
    for kind, value in value_syntax.PATTERNS.items():
        choices = (
            value_syntax.CHOICES if kind is FieldType.TEXT else f"{value}(?:,{value})*"
        )
        ops = f"{COMPARISONS}|{Op.PREFIX}" if kind is FieldType.TEXT else COMPARISONS
        yield (
            filter_name(kind),
            {
                "description": FILTER_DESCRIPTIONS[kind],
                "anyOf": [
                    {
                        "type": "string",
                        "pattern": rf"^(?:{ops})\.{value}$",
                        "maxLength": MAX_CONDITION_LENGTH,
                    },
                    {
                        "type": "string",
                        "pattern": rf"^in\.{choices}$",
                        "maxLength": MAX_IN_LENGTH,
                    },
                    {"type": "string", "enum": ["isnull.true", "isnull.false"]},
                ],
            },
        )


FILTER_DESCRIPTIONS: Mapping[FieldType, str] = {
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
    FieldType.DECIMAL: (
        "`operator.value` with eq, ne, lt, lte, gt or gte, of numbers without an "
        "exponent; `in.1.5,2` for one of up to 200; `isnull.true` or `isnull.false`."
    ),
    FieldType.BOOL: "`eq.true`, `ne.true` and so on; `isnull.true` or `isnull.false`.",
    FieldType.DATE: (
        "`operator.value` with eq, ne, lt, lte, gt or gte, such as `gte.2026-01-31`; "
        "`in.` with up to 200; `isnull.true` or `isnull.false`."
    ),
    FieldType.TIMESTAMP: (
        "`operator.value` with eq, ne, lt, lte, gt or gte, such as "
        "`lt.2026-01-31T12:00:00Z`; without a time it is midnight, without a zone "
        "UTC; `in.` with up to 200; `isnull.true` or `isnull.false`."
    ),
}
