"""What others make of the same work; each runs as a script in `.venv-bench`."""
