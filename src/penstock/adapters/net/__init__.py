"""What the adapters that ask over HTTP share."""
