"""How much of one allowance several processes use, and that they never exceed it."""

import json
from dataclasses import dataclass

import urllib3

from bench.stage import folder, provider, run, verdict

RATE, BURST = 50, 10
PAGE = 10
LEAST_USED = 0.98


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """How long requests are sent, and by how many processes."""

    seconds: int
    workers: tuple[int, ...]
    # what is left out: not all workers have begun, or some have no work any more
    beginning: float
    end: float


FULL = Sizes(seconds=60, workers=(4, 8), beginning=3.0, end=5.0)
SMALL = Sizes(seconds=2, workers=(2,), beginning=0.5, end=0.5)


def measure(*, small: bool = False) -> bool:
    sizes = SMALL if small else FULL
    # enough pages for the whole time, and the limit of the provider set far above
    records = RATE * sizes.seconds * PAGE
    held = []
    for workers in sizes.workers:
        with (
            provider("--small", "--records", str(records)) as url,
            folder(
                url,
                budgets=f'[budgets.b]\nrate = "{RATE}/s"\nburst = {BURST}',
                source='budget = "b"',
                until=records * 4,
                step=records * 4 // 64,
                page=PAGE,
            ) as path,
        ):
            run(path, "--workers", str(workers), "--threads", "2")
            base = url.split("/v3/")[0]
            log = json.loads(
                urllib3.PoolManager().request("GET", f"{base}/sandbox/requests").data
            )
        times = sorted(request["at"] for request in log)
        held.append(judge(workers, times, sizes))
    return all(held)


def judge(workers: int, times: list[float], sizes: Sizes) -> bool:
    """Look at the middle of the run, where there was enough work for all."""
    start, end = times[0] + sizes.beginning, times[-1] - sizes.end
    middle = [at for at in times if start <= at < end]
    used = len(middle) / ((end - start) * RATE)
    peak = largest_burst(times)
    return verdict(
        f"budget with {workers} processes",
        holds=used >= LEAST_USED and peak <= BURST,
        message=f"{used:.1%} of {RATE}/s used over {end - start:.0f} s, "
        f"largest burst {peak:.1f} of {BURST}",
    )


def largest_burst(times: list[float]) -> float:
    """Return the burst that a limiter of this rate would have needed."""
    level, peak, before = 0.0, 0.0, times[0]
    for at in times:
        level = max(level - (at - before) * RATE, 0.0) + 1
        peak, before = max(peak, level), at
    return peak
