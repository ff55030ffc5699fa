"""Who asks the API, and how: as fast as it answers, or at a steady rate."""

import contextlib
import json
import os
import re
import subprocess
import tempfile
import time
from pathlib import Path

import urllib3

from bench.points import ENVIRON

CONNECTIONS = 32
# of the questions of a steady rate, those that nobody was there to ask
MOST_DROPPED = 0.02
API_CORE, CLIENT_CORE = "0", "1"
LOAD = Path(__file__).with_name("load.js")


@contextlib.contextmanager
def running(command, url, *, cwd=None):
    """Run a server on its core until it is no longer needed."""
    pinned = ["taskset", "-c", API_CORE, *map(str, command)]
    with subprocess.Popen(
        pinned, cwd=cwd, env=ENVIRON, stdout=subprocess.DEVNULL
    ) as process:
        try:
            wait_for(url)
            yield
        finally:
            process.terminate()


def wait_for(url):
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        with contextlib.suppress(urllib3.exceptions.HTTPError):
            urllib3.request("GET", url, retries=False, timeout=1)
            return
        time.sleep(0.1)
    raise TimeoutError(url)


def get(url, token):
    answer = urllib3.request("GET", url, headers={"Authorization": token})
    assert answer.status == 200, answer.data
    return answer.data


def rate(points, url, *, script=None):
    """Return the good answers a second of a closed loop."""
    extra = [] if script is None else ["-s", script]
    result = subprocess.run(
        [
            *("taskset", "-c", CLIENT_CORE, "wrk", "-t1", f"-c{CONNECTIONS}"),
            *(
                f"-d{points.sizes.seconds}s",
                "-H",
                f"Authorization: {points.token}",
                *extra,
                url,
            ),
        ],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    found = re.search(r"(\d+) requests in ([\d.]+)s", result)
    assert found is not None, result
    bad = re.search(r"Non-2xx or 3xx responses: (\d+)", result)
    if bad is not None:
        print(f"     {bad[1]} of {found[1]} answers of {url} were errors")
    return (int(found[1]) - int(bad[1] if bad else 0)) / float(found[2])


def delays(points, base, paths, *, per_second):
    """Return p50, p95 and p99 in milliseconds at a steady rate, an open loop."""
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as name:
        summary, questions = Path(name, "summary.json"), Path(name, "questions.json")
        questions.write_text(json.dumps(paths))
        subprocess.run(
            [
                *("taskset", "-c", CLIENT_CORE, ".venv-bench/bin/k6", "run", "--quiet"),
                *(f"--summary-export={summary}", LOAD),
            ],
            env={
                **os.environ,
                "BASE": base,
                "QUESTIONS": str(questions),
                "TOKEN": points.token,
                "RATE": str(per_second),
                "SECONDS": str(points.sizes.seconds),
            },
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            check=True,
        )
        body = json.loads(summary.read_text())["metrics"]
    assert not body["checks"]["fails"], body["checks"]
    # or it was no open loop
    dropped = body.get("dropped_iterations", {"count": 0})["count"]
    assert dropped <= MOST_DROPPED * per_second * points.sizes.seconds, body
    return [body["http_req_duration"][each] for each in ("p(50)", "p(95)", "p(99)")]
