"""A practice provider: a real HTTP server in Open Charge Map's shape."""

from penstock.sandbox.faults import Fault, parse_faults
from penstock.sandbox.journal import Request, peak_over
from penstock.sandbox.options import SandboxOptions
from penstock.sandbox.server import Sandbox

__all__ = [
    "Fault",
    "Request",
    "Sandbox",
    "SandboxOptions",
    "parse_faults",
    "peak_over",
]
