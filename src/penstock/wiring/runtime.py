"""The worker id, the stop signal and the log of this process."""

import os
import secrets
import socket

from penstock.domain.jobs import WorkerId
from penstock.ports import Emit, Runtime, StopSignal
from penstock.settings import Settings


def logging_emit(settings: Settings, *, as_json: bool, verbose: bool) -> Emit:
    from penstock.adapters.telemetry.log import log_events

    return log_events(redact=settings.redact, as_json=as_json, verbose=verbose)


def new_worker_id() -> WorkerId:
    """Return a new worker id; a restart on the same host has another one."""
    return WorkerId(f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}")


def build_runtime(halt: StopSignal) -> Runtime:
    return Runtime(halt=halt)
