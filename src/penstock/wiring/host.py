"""The process itself: its name among the workers, its halt, its log."""

import os
import secrets
import socket

from penstock.domain.job import WorkerId
from penstock.ports import Emit, Halt, Host
from penstock.settings import Settings


def logging_emit(settings: Settings, *, as_json: bool, verbose: bool) -> Emit:
    from penstock.adapters.telemetry.log import log_events

    return log_events(redact=settings.redact, as_json=as_json, verbose=verbose)


def new_worker_id() -> WorkerId:
    """Name a worker so that a restart on the same host is another one."""
    return WorkerId(f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}")


def host_of(halt: Halt) -> Host:
    return Host(halt=halt)
