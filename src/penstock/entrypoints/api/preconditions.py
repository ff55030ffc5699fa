"""Which versions a client means: what If-Match and If-None-Match say of a change."""

import re

from starlette.requests import Request

from penstock.domain.editing import ANY, Precondition
from penstock.errors import BadRequest, Flaw, VersionChanged

# one version as HTTP writes it; a weak one is marked
ENTITY_TAG = r'(?:W/)?"[!#-~]*"'

one_tag = re.compile(ENTITY_TAG)
# a list, of which HTTP allows parts to be empty
is_if_match = re.compile(
    rf"\*|(?:[ \t]*,)*[ \t]*{ENTITY_TAG}(?:[ \t]*,(?:[ \t]*{ENTITY_TAG})?)*"
).fullmatch


def precondition(request: Request) -> Precondition:
    # several lines are one list
    lines = request.headers.getlist("if-match")
    match = ",".join(lines).strip(" \t") if lines else None
    none_match = request.headers.get("if-none-match")
    if match is not None and is_if_match(match) is None:
        # it names no version, so none that there is
        told = (
            'If-Match names no version; it is written "version", as ETag has it, or *'
        )
        raise VersionChanged(told)
    if none_match not in {None, ANY}:
        told = 'takes only * with a change; send If-Match: "version" instead'
        raise BadRequest(Flaw(pointer="#If-None-Match", code="value", detail=told))
    return Precondition(
        match=None if match is None else versions(match),
        must_be_new=none_match is not None,
    )


def versions(header: str) -> frozenset[str]:
    """Read strong versions; to change something, a weak one is not good enough."""
    if header == ANY:
        return frozenset({ANY})
    tags = [each for each in one_tag.findall(header) if each.startswith('"')]
    # behind a dot stands which fields were chosen, of the same version
    return frozenset(tag.strip('"').partition(".")[0] for tag in tags) - {ANY}
