"""The preconditions of a write: If-Match and If-None-Match."""

import re

from starlette.requests import Request

from penstock.domain.record_validation import ANY_VERSION, Precondition
from penstock.errors import BadRequest, FieldError, VersionChanged

# a version in HTTP's syntax; a weak one has the prefix W/
ENTITY_TAG = r'(?:W/)?"[!#-~]*"'

TAG = re.compile(ENTITY_TAG)
# a list; HTTP allows empty elements
IF_MATCH = re.compile(
    rf"\*|(?:[ \t]*,)*[ \t]*{ENTITY_TAG}(?:[ \t]*,(?:[ \t]*{ENTITY_TAG})?)*"
)


def read_precondition(request: Request) -> Precondition:
    # several headers are one list
    lines = request.headers.getlist("if-match")
    match = ",".join(lines).strip(" \t") if lines else None
    none_match = request.headers.get("if-none-match")
    if match is not None and IF_MATCH.fullmatch(match) is None:
        # an invalid tag matches no version
        raise VersionChanged(
            'If-Match contains no valid version; send "version", as in ETag, or *'
        )
    if none_match not in {None, ANY_VERSION}:
        message = 'must be * in a write; send If-Match: "version" instead'
        raise BadRequest(
            FieldError(pointer="#If-None-Match", code="value", detail=message)
        )
    return Precondition(
        match=None if match is None else parse_versions(match),
        must_be_new=none_match is not None,
    )


def parse_versions(header: str) -> frozenset[str]:
    """Return the strong versions of If-Match; weak ones never match (RFC 9110)."""
    if header == ANY_VERSION:
        return frozenset({ANY_VERSION})
    tags = [tag for tag in TAG.findall(header) if tag.startswith('"')]
    # after a dot come the requested fields, of the same version
    return frozenset(tag.strip('"').partition(".")[0] for tag in tags) - {ANY_VERSION}
