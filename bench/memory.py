"""Whether memory stays flat over a million records."""

import json
import subprocess
import time
from pathlib import Path

from bench.stage import PENSTOCK, folder, provider, verdict

RECORDS = 1_000_000
LAST_ID = RECORDS * 4
MOST_MEGABYTES = 150
MOST_GROWTH = 1.25


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


def measure() -> bool:
    samples: list[float] = []
    with (
        provider("--small", "--records", str(RECORDS)) as url,
        folder(url, until=LAST_ID, step=LAST_ID // 16) as path,
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
            time.sleep(0.1)
        assert process.stdout is not None
        body = json.loads(process.stdout.read())
    quarter = len(samples) // 4
    early = max(samples[quarter : 2 * quarter])
    late = max(samples[-quarter:])
    seen = body["records"]["seen"]
    return verdict(
        "memory",
        holds=seen >= RECORDS
        and max(samples) < MOST_MEGABYTES
        and late < early * MOST_GROWTH,
        message=f"{seen:,} records in {body['seconds']} s, at most "
        f"{max(samples):.0f} MB, "
        f"last quarter {late / early:.2f} of the second",
    )
