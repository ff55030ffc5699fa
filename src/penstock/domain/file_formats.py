"""What people send instead of CSV, by its first bytes."""

ZIP = b"PK\x03\x04"
EXCEL = ("an Excel workbook", "save the sheet as CSV UTF-8, and import that")
UNPACK = "unpack it, or pack the CSV file by gzip"
# what people send instead of CSV, by its first bytes
OTHER_FORMATS = {
    ZIP: ("a ZIP archive", "import the CSV files in it, or save the sheet as CSV"),
    b"PK\x05\x06": ("an empty ZIP archive", "import a CSV file"),
    b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1": EXCEL,
    **{b"BZh%d1AY&SY" % level: ("packed by bzip2", UNPACK) for level in range(1, 10)},
    b"\xfd7zXZ\x00": ("packed by xz", UNPACK),
    b"\x28\xb5\x2f\xfd": ("packed by Zstandard", UNPACK),
    b"7z\xbc\xaf\x27\x1c": ("a 7-Zip archive", "import the CSV files in it"),
    b"PAR1\x15": ("a Parquet file", "export it as CSV"),
    b"%PDF-": ("a PDF document", "export its table as CSV"),
    b"SQLite format 3\x00": ("a SQLite database", "export its table as CSV"),
}
# enough to see the names of the first files in an archive
LONGEST_MAGIC = 4096


def describe_format(beginning: bytes, name: str) -> str | None:
    """Say what a file is and what to do with it, if it is known to be no CSV."""
    found = next(filter(beginning.startswith, OTHER_FORMATS), None)
    if found is None:
        return None
    is_sheet = name.lower().endswith((".xlsx", ".xlsm")) or b"xl/" in beginning
    kind, remedy = EXCEL if found == ZIP and is_sheet else OTHER_FORMATS[found]
    return f"it is {kind}, not CSV; {remedy}"
