"""A sandbox provider: an HTTP server with the API of Open Charge Map."""

from penstock.sandbox.faults import InjectedFault, parse_faults
from penstock.sandbox.options import SandboxOptions
from penstock.sandbox.request_log import LoggedRequest, peak_over
from penstock.sandbox.server import Sandbox

__all__ = [
    "InjectedFault",
    "LoggedRequest",
    "Sandbox",
    "SandboxOptions",
    "parse_faults",
    "peak_over",
]
