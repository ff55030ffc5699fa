"""Whether memory stays flat over a million records."""

import json
import subprocess
import time
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from bench.stage import PENSTOCK, folder, provider, verdict

MOST_MEGABYTES = 150
MOST_GROWTH = 1.25


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """How many records are imported, and how often the memory is read meanwhile."""

    records: int
    interval: timedelta


FULL = Sizes(records=1_000_000, interval=timedelta(seconds=0.1))
SMALL = Sizes(records=2_000, interval=timedelta(seconds=0.01))


def resident(pid: int) -> float | None:
    """Return the megabytes that a process holds now."""
    try:
        status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    except OSError:
        return None
    for line in status.splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    return None


def measure(*, small: bool = False) -> bool:
    sizes = SMALL if small else FULL
    # ids have gaps: about three for every point
    last_id = sizes.records * 4
    samples: list[float] = []
    with (
        provider("--small", "--records", str(sizes.records)) as url,
        folder(url, until=last_id, step=last_id // 16) as path,
        subprocess.Popen(
            [*PENSTOCK, "run", "poi", "--json", "--threads", "2"],
            cwd=path,
            stdout=subprocess.PIPE,
            text=True,
        ) as process,
    ):
        while process.poll() is None:
            size = resident(process.pid)
            if size is not None:
                samples.append(size)
            time.sleep(sizes.interval.total_seconds())
        assert process.stdout is not None
        body = json.loads(process.stdout.read())
    quarter = len(samples) // 4
    early = max(samples[quarter : 2 * quarter])
    late = max(samples[-quarter:])
    seen = body["records"]["seen"]
    return verdict(
        "memory",
        holds=seen >= sizes.records
        and max(samples) < MOST_MEGABYTES
        and late < early * MOST_GROWTH,
        message=f"{seen:,} records in {body['seconds']} s, at most "
        f"{max(samples):.0f} MB, "
        f"last quarter {late / early:.2f} of the second",
    )
