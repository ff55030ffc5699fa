"""Injected faults by name, each with its probability."""

from collections.abc import Mapping
from enum import StrEnum
from random import Random
from threading import Lock


class InjectedFault(StrEnum):
    ERROR = "500"
    UNAVAILABLE = "503"
    RESET = "reset"
    SLOW = "slow"
    TRUNCATED = "truncated"
    HTML = "html"
    EMPTY = "empty"
    DISORDER = "disorder"
    EDIT = "edit"
    REMOVE = "remove"


# After these the client has no usable response, and has to retry.
SPOILING = frozenset(
    {
        InjectedFault.ERROR,
        InjectedFault.UNAVAILABLE,
        InjectedFault.RESET,
        InjectedFault.TRUNCATED,
        InjectedFault.HTML,
        InjectedFault.EMPTY,
    }
)


def parse_faults(text: str) -> dict[str, float]:
    """Parse a list such as `500:0.02,reset:0.01`.

    Raises `ValueError` with a message that lists the valid names.
    """
    faults: dict[str, float] = {}
    for item in filter(None, (part.strip() for part in text.split(","))):
        name, _, number = (part.strip() for part in item.partition(":"))
        try:
            faults[name] = float(number)
        except ValueError:
            raise ValueError(
                f"fault {item!r} must be a name and a probability, such as '500:0.02'; "
                f"{_valid_names()}"
            ) from None
    check_faults(faults)
    return faults


def check_faults(faults: Mapping[str, float]) -> None:
    """Raise `ValueError` for unknown names and invalid probabilities."""
    for name, probability in faults.items():
        if name not in set(InjectedFault):
            raise ValueError(f"unknown fault {name!r}; {_valid_names()}")
        if not 0 <= probability <= 1:
            raise ValueError(
                f"the probability of fault {name!r} must be between 0 and 1, "
                f"got {probability!r}"
            )
    # A little tolerance: ten times 0.1 is not quite one in floats.
    if sum(faults.values()) > 1 + 1e-9:
        raise ValueError("the probabilities of all faults must add up to at most 1")


def _valid_names() -> str:
    return f"valid names are {', '.join(InjectedFault)}"


class InjectedFaults:
    """Draws at most one fault per request, in the same order for the same seed."""

    def __init__(self, probabilities: Mapping[str, float], seed: int) -> None:
        self._probabilities = {
            InjectedFault(name): probability
            for name, probability in probabilities.items()
        }
        self._random = Random(f"faults:{seed}")  # noqa: S311 - repeatable on purpose
        self._lock = Lock()

    def draw(self) -> InjectedFault | None:
        if not self._probabilities:
            return None
        rest = self.number()
        for fault, probability in self._probabilities.items():
            if rest < probability:
                return fault
            rest -= probability
        return None

    def number(self) -> float:
        """Return the next number from 0 up to, not including, 1."""
        with self._lock:
            return self._random.random()
