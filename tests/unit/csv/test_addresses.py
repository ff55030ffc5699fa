"""Which addresses a download may reach, however they are written."""

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.adapters.net.public_addresses import is_public

PRIVATE = (
    "0.0.0.0/8",
    "10.0.0.0/8",
    "100.64.0.0/10",
    "127.0.0.0/8",
    "169.254.0.0/16",
    "172.16.0.0/12",
    "192.0.2.0/24",
    "192.168.0.0/16",
    "198.18.0.0/15",
    "203.0.113.0/24",
    "224.0.0.0/4",
    "240.0.0.0/4",
)
# where a form of IPv6 holds the 32 bits of IPv4, counted from the right
FORMS = {
    "mapped": ("::ffff:0:0", 0),
    "compatible": ("::", 0),
    "translated (SIIT)": ("::ffff:0:0:0", 0),
    "NAT64": ("64:ff9b::", 0),
    "NAT64 of a network": ("64:ff9b:1::", 0),
    "6to4": ("2002::", 80),
    "ISATAP": ("2606:2800::5efe:0:0", 0),
    "ISATAP, universal": ("2606:2800::200:5efe:0:0", 0),
    "Teredo server": ("2001::", 64),
}

private_addresses = st.sampled_from(PRIVATE).flatmap(
    lambda network: st.ip_addresses(network=network)
)
low_bits = st.integers(min_value=0, max_value=2**16 - 1)


def embed(form: str, address: ipaddress.IPv4Address, rest: int = 0) -> str:
    """Write an address of IPv4 in a form of IPv6, with some bits behind it."""
    prefix, shift = FORMS[form]
    number = int(ipaddress.IPv6Address(prefix)) | int(address) << shift
    return str(ipaddress.IPv6Address(number | (rest if shift else 0)))


@given(private_addresses, st.sampled_from(sorted(FORMS)), low_bits)
def test_no_form_makes_a_private_address_public(address, form, rest):
    assert not is_public(str(address))
    assert not is_public(embed(form, address, rest))


@given(private_addresses, low_bits)
def test_the_obscured_client_of_teredo_is_not_public(address, rest):
    obscured = int(address) ^ 0xFFFF_FFFF
    base = int(ipaddress.IPv6Address("2001:0:5db8:d822::"))
    assert not is_public(str(ipaddress.IPv6Address(base | rest << 32 | obscured)))


@given(st.integers(min_value=0, max_value=2**128 - 1))
def test_whatever_is_not_global_unicast_or_translated_is_not_public(number):
    address = ipaddress.IPv6Address(number)
    is_unicast = number >> 125 == 0b001
    is_translated = number >> 32 in {0xFFFF, 0x0064_FF9B << 64}
    if not is_unicast and not is_translated:
        assert not is_public(str(address))


@pytest.mark.parametrize(
    "address",
    [
        "::1",
        "::",
        "fe80::1%eth0",
        "fec0::1",
        "fc00::1",
        "ff02::1",
        "100::1",
        "2001:db8::1",
        "3fff::1",
        "64:ff9b::a00:1",
        "2002:7f00:1::",
        "::7f00:1",
        "::ffff:0:7f00:1",
    ],
)
def test_an_address_of_ones_own_network_is_not_public(address):
    assert not is_public(address)


@pytest.mark.parametrize(
    "address",
    [
        "93.184.216.34",
        "2606:2800:220:1::1",
        "2001:4860:4860::8888",
        "::ffff:93.184.216.34",
        # what networks without IPv4 reach the rest of the world by
        "64:ff9b::93.184.216.34",
    ],
)
def test_an_address_of_the_internet_is_public(address):
    assert is_public(address)
