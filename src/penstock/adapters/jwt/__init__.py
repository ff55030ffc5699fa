"""Signed JWTs, verified with the published keys of an issuer or a shared secret."""
