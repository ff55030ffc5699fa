"""The countries and towns in which the generated points are."""

import tomllib
from dataclasses import dataclass
from importlib.resources import files


@dataclass(frozen=True, slots=True, kw_only=True)
class Country:
    id: int
    iso: str
    title: str
    continent: str
    weight: int
    dialling: str
    streets: tuple[str, ...]
    towns: tuple[tuple[str, str, float, float], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PopulatedPlace:
    """A town to put points in; `spread` is the width in degrees around its centre."""

    country: Country
    town: str
    postcode: str
    latitude: float
    longitude: float
    spread: float
    weight: float


def load_countries() -> tuple[Country, ...]:
    text = files(__package__).joinpath("geography.toml").read_text(encoding="utf-8")
    return tuple(
        Country(
            **{
                **entry,
                "streets": tuple(entry["streets"]),
                "towns": tuple(map(tuple, entry["towns"])),
            }
        )
        for entry in tomllib.loads(text)["countries"]
    )


COUNTRIES = load_countries()

COUNTRY_BY_ID = {country.id: country for country in COUNTRIES}
COUNTRY_BY_ISO = {country.iso: country for country in COUNTRIES}

TOWN_SPREAD = 0.2


def _places() -> tuple[PopulatedPlace, ...]:
    towns = [
        PopulatedPlace(
            country=country,
            town=town,
            postcode=postcode,
            latitude=latitude,
            longitude=longitude,
            spread=TOWN_SPREAD,
            weight=country.weight / len(country.towns),
        )
        for country in COUNTRIES
        for town, postcode, latitude, longitude in country.towns
    ]
    # The real data has points at 0,0 that are labelled as British or American.
    lost = [
        PopulatedPlace(
            country=COUNTRY_BY_ISO[iso],
            town="",
            postcode="",
            latitude=0.0,
            longitude=0.0,
            spread=0.0,
            weight=0.15,
        )
        for iso in ("GB", "US")
    ]
    return (*towns, *lost)


PLACES = _places()
