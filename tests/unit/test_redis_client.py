"""Errors of Redis tell the place and the remedy, and never a password."""

import pytest
from redis._parsers.base import BaseParser
from redis.crc import key_slot
from redis.exceptions import RedisError

from penstock.adapters.redis.client import (
    connect,
    refuse_old,
    server_url,
    translate_error,
)
from penstock.adapters.redis.lua_scripts import key_of
from penstock.errors import Misconfigured, StoreUnavailable

PLACE = "redis://127.0.0.1:6379/0"


@pytest.mark.parametrize(
    ("url", "place"),
    [
        ("redis://localhost", "redis://localhost:6379/0"),
        ("redis://:s3cret@db.example:7000/2", "redis://db.example:7000/2"),
        ("rediss://ann:s3cret@db.example/1", "rediss://db.example:6379/1"),
        ("unix:///run/redis.sock?db=3", "unix:///run/redis.sock?db=3"),
        ("unix://ann@/run/redis.sock?password=s3cret", "unix:///run/redis.sock?db=0"),
    ],
)
def test_a_server_is_named_without_its_password(url, place):
    with connect(url) as client:
        assert server_url(client) == place
        assert client.get_retry().get_retries() == 0


@pytest.mark.parametrize(
    "url", ["http://example.org", "redis://:s3#cret@host", "redis://h:port/0", ""]
)
def test_what_is_no_address_is_refused_without_repeating_it(url):
    with pytest.raises(Misconfigured, match=r"redis://.*rediss://.*unix://") as refused:
        connect(url)

    assert "cret" not in str(refused.value)
    assert refused.value.__suppress_context__


def error_of(reply: str) -> RedisError:
    error = BaseParser.parse_error(reply)
    assert isinstance(error, RedisError)
    return error


@pytest.mark.parametrize(
    ("reply", "remedy"),
    [
        ("LOADING Redis is loading the dataset in memory", "until it is ready"),
        ("READONLY You can't write against a read only replica.", "of the primary"),
        ("MASTERDOWN Link with MASTER is down", "primary"),
        ("OOM command not allowed when used memory > 'maxmemory'.", "raise maxmemory"),
        ("MISCONF Redis is configured to save RDB snapshots", "its disk"),
        ("BUSY Redis is busy running a script.", "blocks it"),
        ("CLUSTERDOWN The cluster is down", "cluster is down"),
        ("ERR max number of clients reached", "penstock.redis"),
    ],
)
def test_what_may_pass_is_unavailable(reply, remedy):
    error = translate_error(error_of(reply), PLACE)

    assert isinstance(error, StoreUnavailable)
    assert str(error).startswith(PLACE)
    assert remedy in str(error)


@pytest.mark.parametrize(
    ("reply", "remedy"),
    [
        ("NOAUTH Authentication required.", "password"),
        ("WRONGPASS invalid username-password pair", "password"),
        ("NOPERM this user has no permissions to run 'evalsha'", "allow this user"),
        ("ERR ACL failure in script: No permissions to run 'info'", "allow this user"),
        ("ERR The user executing the script can't run this command", "allow this user"),
        ("MOVED 3999 127.0.0.1:6381", "cluster"),
        ("ERR DB index is out of range", "number of a database"),
    ],
)
def test_what_an_operator_has_to_mend_is_misconfigured(reply, remedy):
    error = translate_error(error_of(reply), PLACE)

    assert isinstance(error, Misconfigured)
    assert str(error).startswith(PLACE)
    assert remedy in str(error)


@pytest.mark.parametrize("version", ["6.2.0", "6.2.14", "7.0.15", "8.4.0", "10.0"])
def test_a_server_that_is_new_enough_is_accepted(version):
    refuse_old(version, PLACE)


@pytest.mark.parametrize("version", ["2.8.19", "5.0.14", "6.0.16", "6.1.242", "?"])
def test_an_old_server_is_refused(version):
    with pytest.raises(Misconfigured, match=r"needs 6\.2 or newer"):
        refuse_old(version, PLACE)


def test_the_key_of_a_budget_is_placed_by_its_name():
    key = key_of("tenant", "dataset:poi")

    assert key == "penstock:{tenant:dataset:poi}:budget"
    assert key_slot(key.encode()) == key_slot(b"tenant:dataset:poi")


def test_no_two_budgets_share_a_key():
    pairs = [
        ("a", "b:c"),
        ("a:b", "c"),
        ("a", "b}c"),
        ("a", "b"),
        ("a}", "b"),
        ("ä", "b"),
    ]

    keys = {key_of(*pair) for pair in pairs}

    assert len(keys) == len(pairs)
    assert all(key.count("{") == key.count("}") == 1 for key in keys)
