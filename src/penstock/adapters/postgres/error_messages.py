"""Driver errors, translated into our own with a remedy for the operator."""

import re

import psycopg
from psycopg import errors as postgres

from penstock.adapters.postgres.identifiers import own_name
from penstock.domain.dataset import Dataset
from penstock.errors import Misconfigured, Refused, StoreTimeout, StoreUnavailable

# the name of a primary key's index; a number follows where the name was taken
PRIMARY_KEY_INDEX = re.compile(r"_pkey\d*$")


def retry_on_conflict(error: postgres.UniqueViolation) -> postgres.SerializationFailure:
    """Return an error that has the transaction retried, so that it finds the row.

    Raises the given one if it is not about the primary key: a unique index that an
    operator has added stays violated.
    """
    if not PRIMARY_KEY_INDEX.search(error.diag.constraint_name or ""):
        raise error
    return postgres.SerializationFailure("another transaction stored a row meanwhile")


NOT_POSTGRES = "that is no PostgreSQL server; correct host and port"
USE_PRIMARY = "penstock.database must name the primary server"

# errors that only an operator can fix, and how; the first match counts
PERMANENT_REMEDIES: tuple[tuple[str, str], ...] = (
    (r"password authentication failed", "check user and password in penstock.database"),
    (r"no password supplied", "give a password in penstock.database, or in ~/.pgpass"),
    (r"no pg_hba\.conf entry", "allow it in the server's pg_hba.conf"),
    (r"pg_hba\.conf rejects", "allow it in the server's pg_hba.conf"),
    (r"authentication failed", "check user and pg_hba.conf"),
    (r'database ".*" does not exist', "create it: createdb, or correct the name"),
    (r'role ".*" does not exist', "create it: createuser, or correct the name"),
    (r"not permitted to log in", "let an administrator run: alter role … login"),
    # the message of a temporary resolver failure is a different one
    (r"resolve host .*(not known|no address)", "correct the host in penstock.database"),
    (r"invalid response to SSL negotiation", NOT_POSTGRES),
    (r"expected authentication request from server", NOT_POSTGRES),
    # must not match a TLS connection that merely broke: that is retried
    (
        r"does not support SSL|certificate|private key file|SSL error: .*alert",
        "check sslmode and the certificates",
    ),
    (r"not currently accepting connections", "allow connections to this database"),
    (r"permission denied for database", "grant connect on this database"),
    (r"Hot standby mode is disabled", USE_PRIMARY),
    (
        r"unsupported startup parameter",
        "give the address of the server itself: a pooler must pass on session settings",
    ),
)

# errors that may be temporary, and what to check
TEMPORARY_REMEDIES: tuple[tuple[str, str], ...] = (
    (
        r"too many clients|remaining connection slots",
        "run fewer workers or threads, or raise max_connections of the server",
    ),
    (
        r"too many connections for",
        "run fewer workers or threads, or raise its connection limit",
    ),
    (
        r"is (starting up|shutting down|in recovery mode|not yet accepting)",
        "wait until it is ready",
    ),
    (
        r"Connection refused|No such file or directory",
        "check that the server runs, and the host and port in penstock.database",
    ),
    (
        r"timeout expired|timed out|No route to host|Network is unreachable",
        "no PostgreSQL server answers there; check host, port and firewall",
    ),
    (r"name resolution", "check the name servers of this host"),
    (r"No space left on device", "make room on the server's disk"),
)

# the address in a message of the driver, which our own message names already
ADDRESS_PREFIX = re.compile(
    r".*?\bconnection to server [^\n]*? failed: (?:FATAL: +)?", re.DOTALL
)
MAX_MESSAGE_LENGTH = 300
ROW_TOO_BIG = re.compile(r"row is too big: size (\d+), maximum size (\d+)")
INDEX_ROW_TOO_BIG = re.compile(
    r'index row size (\d+) exceeds .*?(\d+) for index "(.+)"'
)


def describe(error: psycopg.Error) -> str:
    """Return the driver's message in one line, without hints and addresses."""
    text = error.diag.message_primary or str(error) or type(error).__name__
    first = ADDRESS_PREFIX.sub("", text, count=1).strip().partition("\n")[0]
    return " ".join(first.split())[:MAX_MESSAGE_LENGTH]


def misconfiguration(
    error: psycopg.Error, place: str, schema: str
) -> Misconfigured | None:
    """Return what an operator has to fix, or None if the error may be temporary."""
    message = describe(error)
    match error:
        case postgres.UndefinedTable() | postgres.InvalidSchemaName():
            return Misconfigured(f"{place}: {message}; run: penstock migrate")
        case postgres.InsufficientPrivilege():
            return Misconfigured(f"{place}: {message}; {grant_for(message, schema)}")
        case postgres.ReadOnlySqlTransaction():
            return Misconfigured(f"{place}: {message}; {USE_PRIMARY}")
        case psycopg.OperationalError():
            remedy = first_remedy(PERMANENT_REMEDIES, str(error))
            if remedy is None:
                return None
            return Misconfigured(f"{place}: {message}; {remedy}")
        case _:
            return None


def refused_row(error: psycopg.Error, dataset: Dataset) -> Refused:
    """Return why a table cannot hold a row."""
    message = describe(error)
    if found := ROW_TOO_BIG.search(message):
        size, limit = (f"{int(number):,}" for number in found.groups())
        return Refused(
            f"takes {size} bytes in its table, where a row has room for {limit}; "
            "declare fewer fields, or put some of them into one of type json"
        )
    if found := INDEX_ROW_TOO_BIG.search(message):
        size, limit = (f"{int(number):,}" for number in found.group(1, 2))
        return Refused(
            f"takes {size} bytes in an index, which has room for {limit}; "
            "shorten the value, or take the field out of filter",
            field=field_of(found[3], dataset),
        )
    return Refused("the database refuses it", cause=message)


def field_of(index: str, dataset: Dataset) -> str | None:
    """Return the field that an index is for, if it is one of ours."""
    by_index = {
        own_name("penstock", dataset.name, name): name for name in dataset.filter
    }
    return by_index.get(
        index, dataset.key[0] if PRIMARY_KEY_INDEX.search(index) else None
    )


def unavailable(error: psycopg.Error, place: str) -> StoreUnavailable:
    """Return an error that may be temporary, with what to check if it is not."""
    remedy = first_remedy(TEMPORARY_REMEDIES, str(error))
    message = f"{place}: {describe(error)}"
    if remedy is not None:
        message = f"{message}; {remedy}"
    # by the statement timeout, or because the client has gone
    is_canceled = isinstance(error, postgres.QueryCanceled)
    return StoreTimeout(message) if is_canceled else StoreUnavailable(message)


def grant_for(message: str, schema: str) -> str:
    """Return who has to grant the missing privilege, and how."""
    if "must be owner" in message:
        return "run it as the owner of the tables, or grant that role to this user"
    if "temporary tables" in message:
        return "let its owner run: grant temporary on database … to this user"
    if "for database" in message:
        return f"let its owner run: create schema {schema} authorization this user"
    return (
        f"let the owner run: grant usage, create on schema {schema}, "
        f"and: grant all on all tables in schema {schema}, to this user"
    )


def first_remedy(remedies: tuple[tuple[str, str], ...], message: str) -> str | None:
    for pattern, remedy in remedies:
        if re.search(pattern, message):
            return remedy
    return None
