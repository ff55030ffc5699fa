"""The stop signal, the clock and the randomness of this process."""

from penstock.ports import Runtime, StopSignal


def build_runtime(halt: StopSignal) -> Runtime:
    return Runtime(halt=halt)
