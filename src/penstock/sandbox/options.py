"""The options of a sandbox provider."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta

from penstock.sandbox.faults import check_faults


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxOptions:
    # How many points there are, and the seed they are generated from.
    records: int = 1000
    seed: int = 1
    # Allowed requests per second; None is no limit.
    rate: float | None = None
    burst: int = 10
    # The required API key; None if no key is needed.
    key: str | None = None
    # Delay of every response.
    latency: timedelta = timedelta(0)
    # Probability of each fault by its name.
    faults: Mapping[str, float] = field(default_factory=dict)
    # Additional delay of the fault `slow`.
    slow: timedelta = timedelta(seconds=2)
    # Share of the points that are invalid.
    bad: float = 0.0
    # Share of the /v3/poi/ pages in which some points appear twice in a row.
    duplicates: float = 0.02
    # Tiny points, for measuring throughput.
    small: bool = False
    # Compress responses for clients that accept it.
    gzip: bool = False
    # The provider's clock minus the host's.
    clock_skew: timedelta = timedelta(0)
    # The most points that /practice/capped returns for one query.
    cap: int = 200
    # Require a bearer token from /practice/token on every route.
    oauth: bool = False
    client_id: str = "practice"
    client_secret: str = "practice-secret"  # noqa: S105 - made up, guards made-up data
    token_life: timedelta = timedelta(hours=1)

    def __post_init__(self) -> None:
        check_faults(self.faults)
        if self.records < 0:
            raise ValueError(f"records must not be negative, got {self.records!r}")
        if self.rate is not None and self.rate <= 0:
            raise ValueError(f"rate must be above zero, got {self.rate!r}")
        if self.burst < 1:
            raise ValueError(f"burst must be at least 1, got {self.burst!r}")
        for name in ("bad", "duplicates"):
            share = getattr(self, name)
            if not 0 <= share <= 1:
                raise ValueError(f"{name} must be between 0 and 1, got {share!r}")
