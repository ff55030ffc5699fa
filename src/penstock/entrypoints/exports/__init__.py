"""Export formats; each streams rows into an open file."""
