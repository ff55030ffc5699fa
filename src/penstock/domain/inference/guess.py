"""A guess, and why it was made."""

from dataclasses import dataclass
from typing import Generic, TypeVar

Value_co = TypeVar("Value_co", covariant=True)


@dataclass(frozen=True, slots=True)
class Guess(Generic[Value_co]):
    value: Value_co
    # for a comment in the drafted configuration
    reason: str
    # a warning, where the guess may be wrong
    doubt: str | None = None
