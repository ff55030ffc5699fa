"""The countries and towns over which the practice points are spread."""

from dataclasses import dataclass


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
class Place:
    """A town to put points in; `spread` is the width in degrees around its centre."""

    country: Country
    town: str
    postcode: str
    latitude: float
    longitude: float
    spread: float
    weight: float


COUNTRIES = (
    Country(
        id=1,
        iso="GB",
        title="United Kingdom",
        continent="EU",
        weight=16,
        dialling="+44",
        streets=("High Street", "Station Road", "Church Lane", "Mill Lane"),
        towns=(
            ("London", "SE1", 51.5074, -0.1278),
            ("Manchester", "M1", 53.4808, -2.2426),
            ("Edinburgh", "EH1", 55.9533, -3.1883),
            ("Bristol", "BS1", 51.4545, -2.5879),
            ("Cardiff", "CF10", 51.4816, -3.1791),
            ("Leeds", "LS1", 53.8008, -1.5491),
        ),
    ),
    Country(
        id=2,
        iso="US",
        title="United States",
        continent="NA",
        weight=18,
        dialling="+1",
        streets=("Main St", "Congress Ave", "Oak Street", "2nd Avenue"),
        towns=(
            ("Austin", "787", 30.2672, -97.7431),
            ("San Francisco", "941", 37.7749, -122.4194),
            ("Seattle", "981", 47.6062, -122.3321),
            ("Denver", "802", 39.7392, -104.9903),
            ("Boston", "021", 42.3601, -71.0589),
        ),
    ),
    Country(
        id=87,
        iso="DE",
        title="Germany",
        continent="EU",
        weight=20,
        dialling="+49",
        streets=("Hauptstraße", "Bahnhofstraße", "Am Marktplatz", "Königsallee"),
        towns=(
            ("Berlin", "101", 52.5200, 13.4050),
            ("München", "803", 48.1351, 11.5820),
            ("Köln", "506", 50.9375, 6.9603),
            ("Hamburg", "200", 53.5511, 9.9937),
            ("Nürnberg", "904", 49.4521, 11.0767),
            ("Görlitz", "028", 51.1526, 14.9876),
        ),
    ),
    Country(
        id=80,
        iso="FR",
        title="France",
        continent="EU",
        weight=14,
        dialling="+33",
        streets=("Rue de la République", "Place du Marché", "Avenue Général Leclerc"),
        towns=(
            ("Paris", "750", 48.8566, 2.3522),
            ("Lyon", "690", 45.7640, 4.8357),
            ("Marseille", "130", 43.2965, 5.3698),
            ("Besançon", "250", 47.2378, 6.0241),
            ("Saint-Étienne", "420", 45.4397, 4.3872),
        ),
    ),
    Country(
        id=159,
        iso="NL",
        title="Netherlands",
        continent="EU",
        weight=12,
        dialling="+31",
        streets=("Dorpsstraat", "Stationsplein", "Molenweg"),
        towns=(
            ("Amsterdam", "10", 52.3676, 4.9041),
            ("Rotterdam", "30", 51.9244, 4.4777),
            ("Utrecht", "35", 52.0907, 5.1214),
            ("'s-Hertogenbosch", "52", 51.6978, 5.3037),
        ),
    ),
    Country(
        id=168,
        iso="NO",
        title="Norway",
        continent="EU",
        weight=6,
        dialling="+47",
        streets=("Storgata", "Kirkeveien", "Sjøgata"),
        towns=(
            ("Oslo", "01", 59.9139, 10.7522),
            ("Bergen", "50", 60.3913, 5.3221),
            ("Tromsø", "90", 69.6492, 18.9553),
        ),
    ),
    Country(
        id=210,
        iso="ES",
        title="Spain",
        continent="EU",
        weight=9,
        dialling="+34",
        streets=("Calle Mayor", "Avenida de la Constitución", "Plaza de España"),
        towns=(
            ("Madrid", "280", 40.4168, -3.7038),
            ("Barcelona", "080", 41.3874, 2.1686),
            ("Málaga", "290", 36.7213, -4.4214),
            ("A Coruña", "150", 43.3623, -8.4115),
        ),
    ),
    Country(
        id=112,
        iso="IT",
        title="Italy",
        continent="EU",
        weight=8,
        dialling="+39",
        streets=("Via Roma", "Corso Garibaldi", "Piazza della Libertà"),
        towns=(
            ("Roma", "001", 41.9028, 12.4964),
            ("Milano", "201", 45.4642, 9.1900),
            ("Forlì", "471", 44.2227, 12.0407),
        ),
    ),
    Country(
        id=19,
        iso="AT",
        title="Austria",
        continent="EU",
        weight=4,
        dialling="+43",
        streets=("Wiener Straße", "Hauptplatz", "Kärntner Ring"),
        towns=(
            ("Wien", "10", 48.2082, 16.3738),
            ("Graz", "80", 47.0707, 15.4395),
            ("Sankt Pölten", "31", 48.2047, 15.6256),
        ),
    ),
    Country(
        id=216,
        iso="CH",
        title="Switzerland",
        continent="EU",
        weight=4,
        dialling="+41",
        streets=("Bahnhofstrasse", "Rue du Rhône", "Dorfstrasse"),
        towns=(
            ("Zürich", "80", 47.3769, 8.5417),
            ("Genève", "12", 46.2044, 6.1432),
            ("Bern", "30", 46.9480, 7.4474),
        ),
    ),
    Country(
        id=26,
        iso="BE",
        title="Belgium",
        continent="EU",
        weight=4,
        dialling="+32",
        streets=("Stationsstraat", "Grand-Place", "Rue de l'Église"),
        towns=(
            ("Bruxelles", "10", 50.8503, 4.3517),
            ("Antwerpen", "20", 51.2194, 4.4025),
            ("Liège", "40", 50.6326, 5.5797),
        ),
    ),
    Country(
        id=215,
        iso="SE",
        title="Sweden",
        continent="EU",
        weight=4,
        dialling="+46",
        streets=("Storgatan", "Järnvägsgatan", "Kungsgatan"),
        towns=(
            ("Stockholm", "111", 59.3293, 18.0686),
            ("Göteborg", "411", 57.7089, 11.9746),
            ("Malmö", "211", 55.6050, 13.0038),
        ),
    ),
    Country(
        id=65,
        iso="DK",
        title="Denmark",
        continent="EU",
        weight=3,
        dialling="+45",
        streets=("Nørregade", "Strandvejen", "Algade"),
        towns=(
            ("København", "10", 55.6761, 12.5683),
            ("Aarhus", "80", 56.1629, 10.2039),
            ("Køge", "46", 55.4580, 12.1821),
        ),
    ),
    Country(
        id=179,
        iso="PL",
        title="Poland",
        continent="EU",
        weight=3,
        dialling="+48",
        streets=("ulica Długa", "Aleja Wolności", "ulica Kościuszki"),
        towns=(
            ("Warszawa", "00", 52.2297, 21.0122),
            ("Kraków", "30", 50.0647, 19.9450),
            ("Łódź", "90", 51.7592, 19.4560),
        ),
    ),
    Country(
        id=180,
        iso="PT",
        title="Portugal",
        continent="EU",
        weight=3,
        dialling="+351",
        streets=("Rua Direita", "Avenida da República", "Praça do Comércio"),
        towns=(
            ("Lisboa", "11", 38.7223, -9.1393),
            ("Porto", "40", 41.1579, -8.6291),
            ("Évora", "70", 38.5714, -7.9135),
        ),
    ),
    Country(
        id=79,
        iso="FI",
        title="Finland",
        continent="EU",
        weight=2,
        dialling="+358",
        streets=("Mannerheimintie", "Hämeenkatu", "Asematie"),
        towns=(
            ("Helsinki", "001", 60.1699, 24.9384),
            ("Tampere", "331", 61.4978, 23.7610),
            ("Jyväskylä", "401", 62.2426, 25.7473),
        ),
    ),
    Country(
        id=3,
        iso="IE",
        title="Ireland",
        continent="EU",
        weight=2,
        dialling="+353",
        streets=("O'Connell Street", "Patrick Street", "Shop Street"),
        towns=(
            ("Dublin", "D01", 53.3498, -6.2603),
            ("Cork", "T12", 51.8985, -8.4756),
            ("Dún Laoghaire", "A96", 53.2945, -6.1336),
        ),
    ),
    Country(
        id=44,
        iso="CA",
        title="Canada",
        continent="NA",
        weight=4,
        dialling="+1",
        streets=("King Street", "Rue Sainte-Catherine", "Granville St"),
        towns=(
            ("Toronto", "M5H", 43.6532, -79.3832),
            ("Montréal", "H2X", 45.5019, -73.5674),
            ("Vancouver", "V6B", 49.2827, -123.1207),
        ),
    ),
)

COUNTRY_BY_ID = {country.id: country for country in COUNTRIES}
COUNTRY_BY_ISO = {country.iso: country for country in COUNTRIES}

TOWN_SPREAD = 0.2


def _places() -> tuple[Place, ...]:
    towns = [
        Place(
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
        Place(
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
