"""Say in one sentence what a server refuses, and what to do about it."""

import re

import psycopg
from psycopg import errors as postgres

from penstock.errors import Misconfigured

# what libpq says of a server that answers, but will not have us
SPOKEN: tuple[tuple[str, str], ...] = (
    (r"password authentication failed", "check user and password in penstock.database"),
    (r"no password supplied", "give a password in penstock.database, or in ~/.pgpass"),
    (r"no pg_hba\.conf entry", "allow this host in the server's pg_hba.conf"),
    (r"authentication failed", "check user and pg_hba.conf"),
    (r'database ".*" does not exist', "create it: createdb, or correct the name"),
    (r'role ".*" does not exist', "create it: createuser, or correct the name"),
    (r"could not translate host name", "correct the host in penstock.database"),
    (r"SSL|certificate", "check sslmode and the certificates"),
    (r"not currently accepting connections", "allow connections to this database"),
    (r"permission denied for database", "grant connect on this database"),
)


def explained(error: psycopg.Error) -> str:
    """Return what a driver says in one line, without its hints and addresses."""
    text = error.diag.message_primary or str(error) or type(error).__name__
    return " ".join(text.split())[:300]


def refusal(error: psycopg.Error, place: str, schema: str) -> Misconfigured | None:
    """Return what an operator has to mend, if waiting would not help."""
    told = explained(error)
    match error:
        case postgres.UndefinedTable() | postgres.InvalidSchemaName():
            return Misconfigured(f"{place}: {told}; run penstock migrate first")
        case postgres.InsufficientPrivilege():
            return Misconfigured(
                f"{place}: {told}; let the owner grant it: "
                f"grant all on schema {schema} and on all tables in it"
            )
        case postgres.ReadOnlySqlTransaction():
            return Misconfigured(
                f"{place}: {told}; penstock.database must name the primary server"
            )
        case _:
            pass
    if isinstance(error, psycopg.OperationalError):
        whole = " ".join(str(error).split())
        for pattern, remedy in SPOKEN:
            found = re.search(pattern, whole)
            if found is not None:
                said = whole[whole.rfind("FATAL:") + len("FATAL:") :].strip() or whole
                if "FATAL:" not in whole:
                    said = found[0]
                return Misconfigured(f"{place}: {said}; {remedy}")
    return None
