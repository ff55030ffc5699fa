"""What makes a transaction begin anew: somebody else has stored the same row."""

import re

from psycopg import errors as postgres

# as PostgreSQL calls the index of a key; a number follows where the name was taken
OF_KEY = re.compile(r"_pkey\d*$")


def stored_by_others(error: postgres.UniqueViolation) -> postgres.SerializationFailure:
    """Return what has the work done again, so that it finds the row.

    Only for what the key says: an index of somebody else stays violated.
    """
    if not OF_KEY.search(error.diag.constraint_name or ""):
        raise error
    return postgres.SerializationFailure("a row was stored by others meanwhile")
