"""Packed bytes as they come: how much they unpack to, and whether they are whole."""

import zlib
from math import inf

GZIP_WINDOW = 31
UNPACKED_AT_ONCE = 256 * 1024


class GzipReader:
    """Unpacks gzip to nothing; of other bytes it only says that they are no gzip."""

    def __init__(self) -> None:
        self._member = zlib.decompressobj(GZIP_WINDOW)
        self._is_other = False
        # unpacked bytes until now
        self.size = 0

    @property
    def is_whole(self) -> bool:
        """Whether each member has come with its trailer."""
        return self._member.eof and not self._is_other

    def add(self, piece: bytes, *, most: float = inf) -> None:
        """Take the bytes that follow; leave off beyond so many unpacked ones."""
        while piece and not self._is_other and self.size <= most:
            if self._member.eof:
                # members may be padded
                piece = piece.lstrip(b"\0")
                if not piece:
                    return
                self._member = zlib.decompressobj(GZIP_WINDOW)
            try:
                self.size += len(self._member.decompress(piece, UNPACKED_AT_ONCE))
            except zlib.error:
                self._is_other = True
            piece = self._member.unused_data or self._member.unconsumed_tail
