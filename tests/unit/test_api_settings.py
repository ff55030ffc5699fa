"""What `[api]` may say, and what is refused of it with a remedy."""

from datetime import timedelta
from ipaddress import ip_network
from pathlib import Path

import pytest

from penstock.domain.client_rate import ClientRate
from penstock.errors import Misconfigured
from penstock.settings import load
from penstock.settings.models.api import ApiSettings

DATASET = """
[datasets.poi]
key = "id"
[datasets.poi.source]
type = "csv"
files = "*.csv"
[datasets.poi.fields]
id = { column = "id" }
"""
SECOND = timedelta(seconds=1)


def read(folder: Path, table: str) -> ApiSettings:
    path = folder / "penstock.toml"
    path.write_text(f"{DATASET}\n[api]\n{table}\n", encoding="utf-8")
    return load(path, {}).api


def test_without_the_table_clients_are_limited_generously(tmp_path):
    path = tmp_path / "penstock.toml"
    path.write_text(DATASET, encoding="utf-8")

    api = load(path, {}).api

    assert api.rate == ClientRate(requests=1000, period=SECOND, burst=1000)
    assert api.largest_body == 8 * 2**20
    assert api.origins == frozenset()
    assert api.proxies == ()


def test_everything_can_be_said(tmp_path):
    api = read(
        tmp_path,
        'rate = "600/min"\nburst = 50\nbody = "1MiB"\n'
        'cors = ["https://app.example.org", "http://localhost:3000"]\n'
        'proxies = ["127.0.0.1", "10.0.0.0/8", "2001:db8::/32"]',
    )

    assert api.rate == ClientRate(requests=600, period=60 * SECOND, burst=50)
    assert api.largest_body == 2**20
    assert api.origins == {"https://app.example.org", "http://localhost:3000"}
    wanted = ("127.0.0.1/32", "10.0.0.0/8", "2001:db8::/32")
    assert api.proxies == tuple(map(ip_network, wanted))


def test_one_text_stands_for_a_list(tmp_path):
    api = read(tmp_path, 'cors = "https://[::1]:8443"\nproxies = "::1"')

    assert api.origins == {"https://[::1]:8443"}
    assert api.proxies == (ip_network("::1/128"),)


@pytest.mark.parametrize(
    ("table", "result"),
    [
        ('rate = "often"', "api.rate: 'often' is not a rate such as"),
        ("rate = 5", "api.rate: must be a rate such as"),
        ("burst = 0", "api.burst: must be at least 1"),
        ('body = "1GiB"', "api.body: is more than 256MiB"),
        ('cors = ["*"]', "api.cors[0]: '*' would let every page ask"),
        ('cors = ["https://a.b/"]', "write 'https://a.b'"),
        ('cors = ["https://a.b/path"]', "write 'https://a.b'"),
        ('cors = ["https://user@a.b"]', "write 'https://a.b'"),
        ('cors = ["HTTPS://A.B"]', "write 'https://a.b'"),
        ('cors = ["a.b"]', "'a.b' is not an origin such as"),
        ('cors = ["null"]', "'null' is not an origin such as"),
        ('cors = ["https://a.b:99999"]', "is not an origin such as"),
        ('proxies = ["nginx"]', "api.proxies[0]: 'nginx' is not an address such as"),
        ('proxies = ["10.0.0.1/8"]', "'10.0.0.1/8' is not an address such as"),
        ('rates = "5/s"', "api.rates: unknown key; did you mean 'rate'?"),
    ],
)
def test_what_is_wrong_is_reported_with_its_place_and_a_remedy(tmp_path, table, result):
    with pytest.raises(Misconfigured) as refused:
        read(tmp_path, table)

    assert result in str(refused.value)
