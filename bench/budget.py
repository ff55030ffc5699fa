"""How much of one allowance several processes use, and that they never exceed it."""

import json

import urllib3

from bench.stage import folder, provider, run, verdict

RATE, BURST, SECONDS = 50, 10, 60
WORKERS = (4, 8)
PAGE = 10
LEAST_USED = 0.98


def measure() -> bool:
    # enough pages for the whole time, and the limit of the provider set far above
    records = RATE * SECONDS * PAGE
    held = []
    for workers in WORKERS:
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
        held.append(judge(workers, times))
    return all(held)


def judge(workers: int, times: list[float]) -> bool:
    """Look at the middle of the run, where there was enough work for all."""
    start, end = times[0] + 3.0, times[-1] - 5.0
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
