"""Worker ids that identify their process, so that its end can be noticed.

An id is `HOST:PID:SPACE:START:RANDOM`. The space is a digest of the boot and of the
namespaces in which the numbers of processes are valid; a process in the same space can
tell whether that process still runs. The start time distinguishes it from a later one
with the same number.
"""

import os
import secrets
import socket
from contextlib import suppress
from functools import cache
from hashlib import blake2b
from pathlib import Path

from penstock.domain.jobs import WorkerId

PROC = Path("/proc")
# the processes of one boot share it
BOOT_ID = PROC / "sys/kernel/random/boot_id"
# the state of a process that has ended, and whose parent has not noticed
ZOMBIE = "Z"
# for a space or a start time that cannot be read; equal to no other
UNKNOWN = "-"
PARTS = 5


def new_worker_id() -> WorkerId:
    """Return a new worker id; a restart on the same host has another one."""
    pid = os.getpid()
    _, started = read_process(pid)
    parts = (
        socket.gethostname().replace(":", "-"),
        str(pid),
        process_space(),
        started,
        secrets.token_hex(4),
    )
    return WorkerId(":".join(parts))


def has_ended(worker: WorkerId) -> bool:
    """Return whether the process of a worker is known to have ended.

    False for one of another host, boot or namespace, of which nothing is known.
    """
    parts = worker.split(":")
    if len(parts) != PARTS:
        return False
    host, pid, space, started, _ = parts
    if UNKNOWN in {space, started} or space != process_space():
        return False
    if host != socket.gethostname().replace(":", "-") or not pid.isdecimal():
        return False
    return is_gone(int(pid), started)


def is_gone(pid: int, started: str) -> bool:
    try:
        # a signal that is not sent; /proc may hide the processes of other users
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except OSError:
        pass
    state, found = read_process(pid)
    return found != UNKNOWN and (found != started or state == ZOMBIE)


@cache
def process_space() -> str:
    """Return a digest of this boot and of the namespaces of this process."""
    try:
        # mounted from another namespace, its numbers are of other processes
        if (PROC / "self").readlink().name != str(os.getpid()):
            return UNKNOWN
        names = [BOOT_ID.read_text().strip(), str((PROC / "self/ns/pid").readlink())]
    except OSError:
        return UNKNOWN
    # start times are counted by it, in kernels that have it
    with suppress(OSError):
        names.append(str((PROC / "self/ns/time").readlink()))
    return blake2b("\n".join(names).encode(), digest_size=4).hexdigest()


def read_process(pid: int) -> tuple[str, str]:
    """Return the state of a process, and when it was started, in ticks since boot."""
    try:
        text = (PROC / str(pid) / "stat").read_text(errors="replace")
    except OSError:
        return "", UNKNOWN
    # the name, in parentheses, may contain anything
    fields = text.rpartition(")")[2].split()
    return fields[0], fields[19]
