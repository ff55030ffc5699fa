"""HTTP: pages of records from any API that is asked by URL."""

from penstock.adapters.http.client import Client
from penstock.adapters.http.source import HttpPages
from penstock.adapters.http.transform import Transform

__all__ = ["Client", "HttpPages", "Transform"]
