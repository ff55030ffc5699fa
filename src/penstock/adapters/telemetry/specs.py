"""How the reference lists a metric."""

from typing import NamedTuple


class MetricSpec(NamedTuple):
    """A metric as the reference lists it."""

    # as it is queried
    name: str
    kind: str
    text: str
    labels: tuple[str, ...]
