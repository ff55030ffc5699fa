"""The dashboard: pages rendered on the server, which keep themselves up to date."""
