"""HTTP: pages of records from any JSON API."""

from penstock.adapters.http.client import HttpClient
from penstock.adapters.http.source import HttpSourceReader
from penstock.adapters.http.transform import Transform

__all__ = ["HttpClient", "HttpSourceReader", "Transform"]
