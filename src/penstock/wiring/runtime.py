"""The stop signal and the log of this process."""

from penstock.ports import Emit, Runtime, StopSignal
from penstock.settings import Settings


def logging_emit(settings: Settings, *, as_json: bool, verbose: bool) -> Emit:
    from penstock.adapters.telemetry.log import log_events

    return log_events(redact=settings.redact, as_json=as_json, verbose=verbose)


def build_runtime(halt: StopSignal) -> Runtime:
    return Runtime(halt=halt)
