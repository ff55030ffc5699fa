"""The HTTP API: the only asynchronous package."""
