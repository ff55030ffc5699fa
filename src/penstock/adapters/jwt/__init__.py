"""Tokens as signed JWTs, by the keys that an issuer publishes or by a secret."""
