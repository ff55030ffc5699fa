"""Real servers for tests: found or installed, started privately, never left behind."""
