"""The provider's lookup lists, which compact responses leave out."""

from typing import Any

from penstock.sandbox.geography import COUNTRIES, COUNTRY_BY_ID

OPERATORS = {
    11: "Blue Kestrel Charging",
    23: "Stadtwerke Ladenetz",
    45: "Volt & Söhne",
    86: "Recharge Méditerranée",
    103: "Fjordstrøm AS",
    3271: "Lone Star EV",
}
CONNECTION_TYPES = {
    2: ("CHAdeMO", "IEC 62196-3 Configuration AA"),
    25: ("Type 2 (Socket Only)", "IEC 62196-2 Type 2"),
    27: ("NACS / Tesla Supercharger", "SAE J3400"),
    32: ("CCS (Type 1)", "IEC 62196-3 Configuration EE"),
    33: ("CCS (Type 2)", "IEC 62196-3 Configuration FF"),
    1036: ("Type 2 (Tethered Connector)", "IEC 62196-2 Type 2"),
}
CURRENT_TYPES = {10: "AC (Single-Phase)", 20: "AC (Three-Phase)", 30: "DC"}
LEVELS = {1: "Low (Under 2kW)", 2: "Medium (Over 2kW)", 3: "High (Over 40kW)"}
STATUS_TYPES = {
    0: ("Unknown", None),
    50: ("Operational", True),
    75: ("Partly Operational (Mixed)", True),
    100: ("Not Operational", False),
    150: ("Planned For Future Date", False),
}
USAGE_TYPES = {
    0: "(Unknown)",
    1: "Public",
    4: "Public - Membership Required",
    5: "Public - Pay At Location",
}
DATA_PROVIDERS = {1: "Open Charge Map Contributors", 29: "Practice Bulk Import"}


def reference_data() -> dict[str, list[Any]]:
    """Return the body of /v3/referencedata."""
    return {
        "Countries": [_country(country.id) for country in COUNTRIES],
        "Operators": [_operator(key) for key in OPERATORS],
        "ConnectionTypes": [_connection_type(key) for key in CONNECTION_TYPES],
        "CurrentTypes": [_current_type(key) for key in CURRENT_TYPES],
        "ChargerTypes": [_level(key) for key in LEVELS],
        "StatusTypes": [_status_type(key) for key in STATUS_TYPES],
        "UsageTypes": [_usage_type(key) for key in USAGE_TYPES],
        "DataProviders": [_data_provider(key) for key in DATA_PROVIDERS],
        "SubmissionStatusTypes": [_submission_status(200)],
    }


def hydrate(point: dict[str, Any]) -> dict[str, Any]:
    """Fill in the objects that a compact point only names by their id."""
    address = point["AddressInfo"]
    return point | {
        "DataProvider": _data_provider(point["DataProviderID"]),
        "OperatorInfo": _operator(point["OperatorID"]),
        "UsageType": _usage_type(point["UsageTypeID"]),
        "StatusType": _status_type(point["StatusTypeID"]),
        "SubmissionStatus": _submission_status(point["SubmissionStatusTypeID"]),
        "AddressInfo": address | {"Country": _country(address["CountryID"])},
        "Connections": [
            connection
            | {
                "ConnectionType": _connection_type(connection["ConnectionTypeID"]),
                "StatusType": _status_type(connection["StatusTypeID"]),
                "Level": _level(connection["LevelID"]),
                "CurrentType": _current_type(connection["CurrentTypeID"]),
            }
            for connection in point["Connections"]
        ],
    }


def _country(key: int) -> dict[str, Any] | None:
    country = COUNTRY_BY_ID.get(key)
    if country is None:
        return None
    return {
        "ISOCode": country.iso,
        "ContinentCode": country.continent,
        "ID": country.id,
        "Title": country.title,
    }


def _operator(key: int | None) -> dict[str, Any] | None:
    if key is None:
        return None
    return {
        "WebsiteURL": f"https://operator-{key}.example.org/",
        "Comments": None,
        "PhonePrimaryContact": None,
        "PhoneSecondaryContact": None,
        "IsPrivateIndividual": False,
        "AddressInfo": None,
        "BookingURL": None,
        "ContactEmail": None,
        "FaultReportEmail": f"faults@operator-{key}.example.org",
        "IsRestrictedEdit": False,
        "ID": key,
        "Title": OPERATORS[key],
    }


def _connection_type(key: int) -> dict[str, Any]:
    title, formal_name = CONNECTION_TYPES[key]
    return {
        "FormalName": formal_name,
        "IsDiscontinued": False,
        "IsObsolete": False,
        "ID": key,
        "Title": title,
    }


def _current_type(key: int) -> dict[str, Any]:
    return {"Description": None, "ID": key, "Title": CURRENT_TYPES[key]}


def _level(key: int) -> dict[str, Any]:
    fast = key == max(LEVELS)
    title = LEVELS[key]
    return {"Comments": None, "IsFastChargeCapable": fast, "ID": key, "Title": title}


def _status_type(key: int | None) -> dict[str, Any] | None:
    if key is None:
        return None
    title, operational = STATUS_TYPES[key]
    return {
        "IsOperational": operational,
        "IsUserSelectable": True,
        "ID": key,
        "Title": title,
    }


def _usage_type(key: int | None) -> dict[str, Any] | None:
    if key is None:
        return None
    return {
        "IsPayAtLocation": key == 5,  # noqa: PLR2004 - the id of that usage type
        "IsMembershipRequired": key == 4,  # noqa: PLR2004 - the id of that usage type
        "IsAccessKeyRequired": False,
        "ID": key,
        "Title": USAGE_TYPES[key],
    }


def _submission_status(key: int) -> dict[str, Any]:
    return {"IsLive": True, "ID": key, "Title": "Submission Published"}


def _data_provider(key: int) -> dict[str, Any]:
    return {
        "WebsiteURL": "https://data.example.org/",
        "Comments": None,
        "DataProviderStatusType": {
            "IsProviderEnabled": True,
            "ID": 1,
            "Title": "Manual Data Entry",
        },
        "IsRestrictedEdit": False,
        "IsOpenDataLicensed": True,
        "IsApprovedImport": True,
        "License": "Made-up practice data",
        "DateLastImported": None,
        "ID": key,
        "Title": DATA_PROVIDERS[key],
    }
