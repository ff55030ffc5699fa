"""A guess, and why it was made."""

from dataclasses import dataclass
from typing import Generic, TypeVar

Value_co = TypeVar("Value_co", covariant=True)


@dataclass(frozen=True, slots=True)
class Guessed(Generic[Value_co]):
    value: Value_co
    # a sentence without capital and full stop, for a comment
    reason: str
    # a sentence for people, where the guess may well be wrong
    doubt: str | None = None
