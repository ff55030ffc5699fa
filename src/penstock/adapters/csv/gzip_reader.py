"""Check a stream of gzip: its decompressed size, and whether it is complete."""

import zlib
from math import inf

GZIP_WINDOW = 31
BLOCK_SIZE = 256 * 1024


class GzipReader:
    """Decompresses gzip and discards the result; other bytes are only recognised."""

    def __init__(self) -> None:
        self._member = zlib.decompressobj(GZIP_WINDOW)
        self._is_other = False
        # the decompressed bytes so far
        self.size = 0

    @property
    def is_whole(self) -> bool:
        """Whether each member has its trailer."""
        return self._member.eof and not self._is_other

    def add(self, chunk: bytes, *, most: float = inf) -> None:
        """Add the next bytes; stop beyond `most` decompressed bytes."""
        while chunk and not self._is_other and self.size <= most:
            if self._member.eof:
                # members may be padded
                chunk = chunk.lstrip(b"\0")
                if not chunk:
                    return
                self._member = zlib.decompressobj(GZIP_WINDOW)
            try:
                self.size += len(self._member.decompress(chunk, BLOCK_SIZE))
            except zlib.error:
                self._is_other = True
            chunk = self._member.unused_data or self._member.unconsumed_tail
