"""Write rows in the dialect of a file that was imported."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from typing_extensions import override

from penstock.adapters.csv.byte_stream import ByteStream, translate_errors
from penstock.adapters.csv.header import FileHeader, read_header
from penstock.adapters.csv.limits import LIMITS
from penstock.adapters.csv.source import declared_dialect
from penstock.domain.dataset import Dataset
from penstock.domain.sharding.parts import Slice
from penstock.errors import Rejected
from penstock.ports.file_format import FileFormat, FileFormats

LINE_ENDS = ("\r\n", "\n", "\r")


@dataclass(frozen=True, slots=True, kw_only=True)
class CsvFileFormat(FileFormat):
    header: FileHeader
    first_bytes: bytes

    @property
    @override
    def head(self) -> bytes:
        return self.end_row(self.first_bytes) if self.first_bytes else b""

    @override
    def write_row(self, values: Mapping[str, str]) -> bytes:
        delimiter = self.header.dialect.delimiter
        cells = [*self._cells(values)]
        text = delimiter.join(cells)
        if self.header.shape.is_trailing:
            text += delimiter
        return self._encode(text + self._line_end)

    @override
    def end_row(self, raw: bytes) -> bytes:
        text = self.header.dialect.codec.decode_leniently(raw)
        is_ended = text.endswith(LINE_ENDS)
        return raw if is_ended else raw + self._encode(self._line_end)

    @property
    def _line_end(self) -> str:
        text = self.header.dialect.codec.decode_leniently(self.first_bytes)
        return next((end for end in LINE_ENDS if text.endswith(end)), "\n")

    def _cells(self, values: Mapping[str, str]) -> Iterator[str]:
        dialect = self.header.dialect
        special = {dialect.delimiter, dialect.quote, "\r", "\n"}
        is_single = len(self.header.names) == 1
        for name in self.header.names:
            value = values[name]
            # a line without any character is no row
            is_blank = is_single and not value
            if dialect.quote is None or (special.isdisjoint(value) and not is_blank):
                yield value
                continue
            if dialect.escape is not None:
                value = value.replace(dialect.escape, dialect.escape * 2)
            quoted = value.replace(dialect.quote, dialect.quote * 2)
            yield f"{dialect.quote}{quoted}{dialect.quote}"

    def _encode(self, text: str) -> bytes:
        codec = self.header.dialect.codec
        return text.encode(codec.name, codec.lenient)


class CsvFileFormats(FileFormats):
    @override
    def read(self, dataset: Dataset, part: Slice) -> FileFormat:
        source = dataset.csv
        path = Path(source.folder, part.file)
        with translate_errors(path):
            size = path.stat().st_size
        if size != part.size:
            raise Rejected(f"{part.file} has changed since it was imported")
        limits = replace(LIMITS, expansion=source.max_expansion)
        header = read_header(path, declared_dialect(source), limits=limits)
        with ByteStream(path, limits=limits) as stream:
            return CsvFileFormat(header=header, first_bytes=stream.read(header.start))
