"""The HTTP API: the only place where anything is asynchronous."""
