"""The dashboard of the demo, and a provider whose data goes on changing."""

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from penstock.errors import PenstockError
from penstock.sandbox import Sandbox

# imports that follow the first one; its URL is open for as long as the demo runs
SCHEDULE = """
[schedules.poi]
dataset = "poi"
every = "30s"
catch_up = "none"
"""
# seconds between two changes of a point, and until the processes must have stopped
CHANGE_INTERVAL, STOP_TIMEOUT = 0.5, 30.0


@contextmanager
def dashboard(config: Path, port: int) -> Iterator[str]:
    """Serve the dashboard, with a scheduler and a worker; return its URL."""
    command = ["serve", "--config", str(config), "--port", str(port), "--grace", "0"]
    with (
        (config.parent / "serve.log").open("wb") as log,
        subprocess.Popen(  # noqa: S603 (our own command)
            [
                *(sys.executable, "-m", "penstock", *command),
                *("--json", "--with-scheduler", "--with-worker"),
            ],
            stdout=subprocess.PIPE,
            stderr=log,
            # Ctrl-C reaches this process only, which then stops it
            process_group=0,
        ) as process,
    ):
        try:
            line = process.stdout.readline() if process.stdout is not None else b""
            if not line:
                raise PenstockError(read_error(config.parent / "serve.log"))
            yield str(json.loads(line)["url"])
        finally:
            process.terminate()
            process.wait(STOP_TIMEOUT)


def read_error(log: Path) -> str:
    """Return why a process could not serve, as it says itself."""
    text = log.read_text("utf-8", errors="replace").strip()
    return text.rpartition("\n")[2].removeprefix("penstock: ")


def change_points(provider: Sandbox, points: list[int], halt: threading.Event) -> None:
    """Change, add and remove points until `halt` is set, for imports to find."""
    turn = 0
    while not halt.wait(CHANGE_INTERVAL):
        turn += 1
        point = points[turn * 7919 % len(points)]
        match turn % 10:
            case 0:
                provider.add()
            case 5 if len(points) > 1:
                points.remove(point)
                provider.remove(point)
            case _:
                provider.edit(point)
