"""Generate a charging point from a seed and an id, always the same one."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from hashlib import blake2b
from struct import Struct
from typing import Any

from penstock.sandbox.geography import PopulatedPlace
from penstock.sandbox.reference_data import OPERATORS

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
DRAW_RANGE = 65536

_DRAWS = Struct("<32H")
_UUID = "{:04X}{:04X}-{:04X}-{:04X}-{:04X}-{:04X}{:04X}{:04X}".format
_OPERATOR_IDS = (*OPERATORS, None)
_SITES = (
    "Parkhaus",
    "Supermarket",
    "Hôtel de Ville",
    "Service Area",
    "Café Olé",
    "P+R",
)
_COSTS = (
    "",
    "£0.30/kWh",
    "0,39 €/kWh",
    "Free",
    "kostenlos während der Öffnungszeiten",
    None,
)
_COMMENTS = (
    "Open 24/7",
    "Behind the barrier\r\nring the bell",
    "Zufahrt\tüber den Hof",
    "",
    " only for customers ",
    None,
    None,
    None,
)
# connection type, level, current type, kW, volts, amps; some powers are floats
_PLUGS = (
    (25, 2, 20, 22, 400, 32),
    (1036, 2, 20, 11.0, 400, 16),
    (25, 2, 10, 7.4, 230, 32),
    (33, 3, 30, 50, 500, 125),
    (33, 3, 30, 150.0, 920, None),
    (2, 3, 30, 50, 500, 125),
    (32, 3, 30, 62.5, 480, None),
    (27, 3, 30, 250, None, None),
)


def draws(seed: int, point_id: int) -> tuple[int, ...]:
    """Return 32 numbers below 65,536 that belong to this point alone."""
    # A hash instead of `random`: several times faster, and stable across versions.
    digest = blake2b(b"%d:%d" % (seed, point_id), digest_size=64).digest()
    return _DRAWS.unpack(digest)


def coordinates(place: PopulatedPlace, draw: Sequence[int]) -> tuple[float, float]:
    """Return latitude and longitude, somewhere in the place's square."""
    return (
        round(place.latitude + (draw[0] / DRAW_RANGE - 0.5) * place.spread, 6),
        round(place.longitude + (draw[1] / DRAW_RANGE - 0.5) * place.spread, 6),
    )


def created_minute(modified: int, draw: Sequence[int]) -> int:
    """Return the minute of creation, which in rare points is after the last change."""
    if draw[3] % 64 == 0:
        return modified + draw[2] % 1440
    return modified - draw[2] * 8


@lru_cache(maxsize=100_000)
def timestamp(minute: int) -> str:
    """Format minutes since 1970 as the provider does: the seconds are always zero."""
    return (EPOCH + minute * MINUTE).isoformat()[:19] + "Z"


def minute_of(moment: datetime) -> int:
    """Return the minute in which this moment lies."""
    return (moment - EPOCH) // MINUTE


def small_point(
    seed: int, point_id: int, place: PopulatedPlace, modified: int
) -> dict[str, Any]:
    """Build a tiny point, for measuring throughput."""
    draw = draws(seed, point_id)
    latitude, longitude = coordinates(place, draw)
    return {
        "ID": point_id,
        "AddressInfo": {
            "Title": _title(place, draw),
            "Town": place.town,
            "CountryID": place.country.id,
            "Latitude": latitude,
            "Longitude": longitude,
        },
        "NumberOfPoints": 1 + draw[9] % 8,
        "DateLastStatusUpdate": timestamp(modified),
    }


def full_point(
    seed: int, point_id: int, place: PopulatedPlace, modified: int
) -> dict[str, Any]:
    """Build a point as a compact, verbose response shows it."""
    draw = draws(seed, point_id)
    status = (50, 50, 50, 50, 50, 75, 100, 150, 0, None)[draw[8] % 10]
    return {
        "DataProvider": None,
        "OperatorInfo": None,
        "UsageType": None,
        "StatusType": None,
        "SubmissionStatus": None,
        "UserComments": None,
        "PercentageSimilarity": None,
        "MediaItems": None,
        "IsRecentlyVerified": False,
        "DateLastVerified": timestamp(modified),
        "ID": point_id,
        "UUID": _uuid(draw),
        "ParentChargePointID": None,
        "DataProviderID": 29 if draw[7] % 4 == 0 else 1,
        "DataProvidersReference": f"REF-{draw[7]}" if draw[7] % 4 == 0 else None,
        "OperatorID": _pick(_OPERATOR_IDS, draw[6]),
        "OperatorsReference": None,
        "UsageTypeID": (1, 4, 5, 0, None)[draw[5] % 5],
        "UsageCost": _pick(_COSTS, draw[4]),
        "AddressInfo": _address(point_id, place, draw),
        "Connections": _connections(point_id, draw),
        "NumberOfPoints": None if draw[9] % 16 == 0 else 1 + draw[9] % 8,
        "GeneralComments": _pick(_COMMENTS, draw[10]),
        "DatePlanned": None,
        "DateLastConfirmed": None,
        "StatusTypeID": status,
        "DateLastStatusUpdate": timestamp(modified),
        "MetadataValues": None,
        "DataQualityLevel": 1 + draw[11] % 5,
        "DateCreated": timestamp(created_minute(modified, draw)),
        "SubmissionStatusTypeID": 100 if draw[11] % 8 == 0 else 200,
    }


def spoil(point: dict[str, Any], kind: int) -> tuple[dict[str, Any], str]:
    """Return the point made invalid, and what is wrong with it."""
    address = point["AddressInfo"]
    match kind % 4:
        case 0:
            return point | {"AddressInfo": address | {"Title": None}}, "no title"
        case 1:
            return point | {"AddressInfo": address | {"Latitude": 999}}, "bad latitude"
        case 2:
            return {k: v for k, v in point.items() if k != "ID"}, "no id"
        case _:
            return point | {"NumberOfPoints": "several"}, "bad number"


def _pick(choices: Sequence[Any], draw: int) -> Any:
    return choices[draw % len(choices)]


def _uuid(draw: Sequence[int]) -> str:
    return _UUID(*draw[24:32])


def _title(place: PopulatedPlace, draw: Sequence[int]) -> str:
    street = _pick(place.country.streets, draw[12])
    return _add_noise(
        f"{_pick(_SITES, draw[13])} {street} {draw[14] % 200 + 1}", draw[15]
    )


def _address(
    point_id: int, place: PopulatedPlace, draw: Sequence[int]
) -> dict[str, Any]:
    latitude, longitude = coordinates(place, draw)
    country = place.country
    line = f"{_pick(country.streets, draw[12])} {draw[14] % 200 + 1}"
    phone = f"{country.dialling} {draw[16]:05d} {draw[17]:05d}"
    return {
        "ID": point_id + 389,
        "Title": _title(place, draw),
        "AddressLine1": _pick(
            (line, line, line, _add_noise(line, draw[18]), "", None), draw[18]
        ),
        "AddressLine2": _pick(("", None, None, "Ebene -1"), draw[19]),
        "Town": _add_noise(place.town, draw[20]) if draw[20] % 24 else None,
        "StateOrProvince": _pick((None, "", country.title), draw[21]),
        "Postcode": f"{place.postcode}{draw[21] % 100:02d}" if draw[21] % 8 else None,
        "CountryID": country.id,
        "Country": None,
        "Latitude": latitude,
        "Longitude": longitude,
        "ContactTelephone1": _pick(
            (None, None, phone, f" {phone}", f"{phone} / {phone[:-1]}", "NA", ""),
            draw[16],
        ),
        "ContactTelephone2": None,
        "ContactEmail": None,
        "AccessComments": _pick(_COMMENTS, draw[22]),
        "RelatedURL": _pick((None, "", "https://points.example.org/"), draw[22]),
        "Distance": None,
        "DistanceUnit": 0,
    }


def _connections(point_id: int, draw: Sequence[int]) -> list[dict[str, Any]]:
    connections = []
    for number in range(draw[23] % 4):
        kind, level, current, power, volts, amps = _PLUGS[
            (draw[23] >> (2 + 3 * number)) % len(_PLUGS)
        ]
        connections.append(
            {
                "ID": point_id * 4 + number,
                "ConnectionTypeID": kind,
                "ConnectionType": None,
                "Reference": None,
                "StatusTypeID": 50,
                "StatusType": None,
                "LevelID": level,
                "Level": None,
                "Amps": amps,
                "Voltage": volts,
                "PowerKW": power,
                "CurrentTypeID": current,
                "CurrentType": None,
                "Quantity": 1 + (draw[9] + number) % 4,
                "Comments": None,
            }
        )
    return connections


def _add_noise(text: str, draw: int) -> str:
    """Add the defects of real data to about one text in seven."""
    match draw % 32:
        case 0:
            return f" {text}"
        case 1:
            return f"{text}  "
        case 2:
            return text.replace(" ", "\t", 1)
        case 3:
            return f"{text}\r\n"
        case 4:
            # UTF-8 once read as Latin-1: "SÃ¤ule" for "Säule".
            return text.encode().decode("latin-1")
        case _:
            return text
