"""Names of our own making, which PostgreSQL would cut off in silence."""

from hashlib import blake2b

LONGEST = 63


def own_name(*parts: str) -> str:
    """Join parts by colons, which stand in no declared name; shorten what is too long.

    A part of the end is replaced by a digest, so that two long names stay two.
    """
    name = ":".join(parts)
    if len(name.encode()) <= LONGEST:
        return name
    digest = blake2b(name.encode(), digest_size=5).hexdigest()
    kept = name.encode()[: LONGEST - len(digest) - 1].decode(errors="ignore")
    return f"{kept}:{digest}"
