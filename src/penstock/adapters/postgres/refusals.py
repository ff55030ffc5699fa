"""Say in one sentence what a server refuses, and what to do about it."""

import re

import psycopg
from psycopg import errors as postgres

from penstock.adapters.postgres.conflicts import OF_KEY
from penstock.adapters.postgres.names import own_name
from penstock.domain.dataset import Dataset
from penstock.errors import Misconfigured, Refused, StoreTooSlow, StoreUnavailable

ELSEWHERE = "what answers there is no PostgreSQL server; correct host and port"
PRIMARY = "penstock.database must name the primary server"

# what only an operator can mend; the first that fits is told
MEND: tuple[tuple[str, str], ...] = (
    (r"password authentication failed", "check user and password in penstock.database"),
    (r"no password supplied", "give a password in penstock.database, or in ~/.pgpass"),
    (r"no pg_hba\.conf entry", "allow it in the server's pg_hba.conf"),
    (r"pg_hba\.conf rejects", "allow it in the server's pg_hba.conf"),
    (r"authentication failed", "check user and pg_hba.conf"),
    (r'database ".*" does not exist', "create it: createdb, or correct the name"),
    (r'role ".*" does not exist', "create it: createuser, or correct the name"),
    (r"not permitted to log in", "let an administrator run: alter role … login"),
    # a resolver that is away for a moment says something else
    (r"resolve host .*(not known|no address)", "correct the host in penstock.database"),
    (r"invalid response to SSL negotiation", ELSEWHERE),
    (r"expected authentication request from server", ELSEWHERE),
    # a TLS line that merely broke must not be among these: it is opened again
    (
        r"does not support SSL|certificate|private key file|SSL error: .*alert",
        "check sslmode and the certificates",
    ),
    (r"not currently accepting connections", "allow connections to this database"),
    (r"permission denied for database", "grant connect on this database"),
    (r"Hot standby mode is disabled", PRIMARY),
    (
        r"unsupported startup parameter",
        "give the address of the server itself: a pooler must pass on session settings",
    ),
)

# what may pass by itself, and what to look at meanwhile
PASSING: tuple[tuple[str, str], ...] = (
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

# before what is worth telling: whom we called, which the sentence names already
CALLED = re.compile(
    r".*?\bconnection to server [^\n]*? failed: (?:FATAL: +)?", re.DOTALL
)
LONGEST = 300
TOO_WIDE = re.compile(r"row is too big: size (\d+), maximum size (\d+)")
TOO_LONG = re.compile(r'index row size (\d+) exceeds .*?(\d+) for index "(.+)"')


def explained(error: psycopg.Error) -> str:
    """Return what a driver says in one line, without its hints and addresses."""
    text = error.diag.message_primary or str(error) or type(error).__name__
    first = CALLED.sub("", text, count=1).strip().partition("\n")[0]
    return " ".join(first.split())[:LONGEST]


def refusal(error: psycopg.Error, place: str, schema: str) -> Misconfigured | None:
    """Return what an operator has to mend, if waiting would not help."""
    told = explained(error)
    match error:
        case postgres.UndefinedTable() | postgres.InvalidSchemaName():
            return Misconfigured(f"{place}: {told}; run: penstock migrate")
        case postgres.InsufficientPrivilege():
            return Misconfigured(f"{place}: {told}; {right_to(told, schema)}")
        case postgres.ReadOnlySqlTransaction():
            return Misconfigured(f"{place}: {told}; {PRIMARY}")
        case psycopg.OperationalError():
            remedy = first_of(MEND, str(error))
            return (
                None if remedy is None else Misconfigured(f"{place}: {told}; {remedy}")
            )
        case _:
            return None


def refused_row(error: psycopg.Error, dataset: Dataset) -> Refused:
    """Say why a table cannot hold a row, by what its driver says of it."""
    told = explained(error)
    if found := TOO_WIDE.search(told):
        size, most = (f"{int(each):,}" for each in found.groups())
        return Refused(
            f"takes {size} bytes in its table, where a row has room for {most}; "
            "declare fewer fields, or put some of them into one of type json"
        )
    if found := TOO_LONG.search(told):
        size, most = (f"{int(each):,}" for each in found.group(1, 2))
        return Refused(
            f"takes {size} bytes in an index, which has room for {most}; "
            "shorten the value, or take the field out of filter",
            field=field_of(found[3], dataset),
        )
    return Refused("the database refuses it", cause=told)


def field_of(index: str, dataset: Dataset) -> str | None:
    """Return the field that an index is for, if it is one of ours."""
    by_index = {
        own_name("penstock", dataset.name, name): name for name in dataset.filter
    }
    return by_index.get(index, dataset.key[0] if OF_KEY.search(index) else None)


def unavailable(error: psycopg.Error, place: str) -> StoreUnavailable:
    """Say what may pass by itself, and what to look at if it does not."""
    remedy = first_of(PASSING, str(error))
    told = explained(error)
    # by the time limit of the connection, or by whoever no longer waits
    is_slow = isinstance(error, postgres.QueryCanceled)
    kind = StoreTooSlow if is_slow else StoreUnavailable
    return kind(f"{place}: {told}" if remedy is None else f"{place}: {told}; {remedy}")


def right_to(told: str, schema: str) -> str:
    """Say who has to grant what was missing."""
    if "must be owner" in told:
        return "run it as the owner of the tables, or grant that role to this user"
    if "temporary tables" in told:
        return "let its owner run: grant temporary on database … to this user"
    if "for database" in told:
        return f"let its owner run: create schema {schema} authorization this user"
    return (
        f"let the owner run: grant usage, create on schema {schema}, "
        f"and: grant all on all tables in schema {schema}, to this user"
    )


def first_of(remedies: tuple[tuple[str, str], ...], told: str) -> str | None:
    for pattern, remedy in remedies:
        if re.search(pattern, told):
            return remedy
    return None
