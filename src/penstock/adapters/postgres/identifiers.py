"""Generated names, which PostgreSQL would silently truncate, and lock numbers."""

from hashlib import blake2b

MAX_NAME_BYTES = 63


def own_name(*parts: str) -> str:
    """Join parts by colons, which no declared name contains, and shorten the result.

    The end of a long name is replaced by a digest, so that names stay distinct.
    """
    name = ":".join(parts)
    if len(name.encode()) <= MAX_NAME_BYTES:
        return name
    digest = blake2b(name.encode(), digest_size=5).hexdigest()
    start = name.encode()[: MAX_NAME_BYTES - len(digest) - 1].decode(errors="ignore")
    return f"{start}:{digest}"


def lock_number(what: str) -> int:
    """Return the number of an advisory lock."""
    digest = blake2b(f"penstock:{what}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, signed=True)
