"""What OpenAPI says of budgets."""

from collections.abc import Mapping

from penstock.entrypoints.api.schemas import Schema
from penstock.entrypoints.api.shapes import answer, shape
from penstock.entrypoints.api.work_shapes import COUNT, NUMBER_OR_NONE, TEXT_OR_NONE

ONE_BUDGET: Schema = shape(
    {
        "name": {"type": "string"},
        "state": {"enum": ["open", "closed", "stopped"]},
        "limits": {
            "type": "array",
            "items": shape({"rate": {"type": "string"}, "remaining": COUNT}),
        },
        "taken": COUNT,
        "closed_seconds": NUMBER_OR_NONE,
        "reason": TEXT_OR_NONE,
    }
)
BUDGETS: Mapping[int, Schema] = {
    200: answer(
        "All budgets.", shape({"items": {"type": "array", "items": ONE_BUDGET}})
    )
}
BUDGET: Mapping[int, Schema] = {200: answer("The budget, which is open.", ONE_BUDGET)}
