"""The numbers under which processes wait for each other."""

from hashlib import blake2b


def lock_number(what: str) -> int:
    digest = blake2b(f"penstock:{what}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, signed=True)
