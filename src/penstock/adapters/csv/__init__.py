"""CSV: huge files, cut where records begin, and read chunk by chunk."""

from penstock.adapters.csv.columns import ColumnCheck, check_columns
from penstock.adapters.csv.cut import Cuts, Range, cut
from penstock.adapters.csv.dialect import Declared, Dialect
from penstock.adapters.csv.excerpt import BadRow, Place
from penstock.adapters.csv.head import Head, read_head
from penstock.adapters.csv.limits import Limits
from penstock.adapters.csv.read import Chunk, Chunks
from penstock.adapters.csv.windows import Flaw

__all__ = [
    "BadRow",
    "Chunk",
    "Chunks",
    "ColumnCheck",
    "Cuts",
    "Declared",
    "Dialect",
    "Flaw",
    "Head",
    "Limits",
    "Place",
    "Range",
    "check_columns",
    "cut",
    "read_head",
]
