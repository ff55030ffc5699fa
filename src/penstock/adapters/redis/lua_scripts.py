"""Run the Lua scripts that ship with this adapter, each on the key of one budget."""

from collections.abc import Callable
from datetime import datetime
from importlib import resources
from typing import Any
from urllib.parse import quote

from redis import Redis
from redis.commands.core import Script

from penstock.adapters.redis.client import translate_errors
from penstock.domain.formats import EPOCH, MICROSECOND

# prepended to every script; Redis has no includes
PREAMBLE = "state.lua"


class LuaScripts:
    """The scripts on one server; a script that it has not cached is sent to it."""

    def __init__(
        self,
        client: Redis,
        *,
        namespace: str,
        clock: Callable[[], datetime] | None = None,
    ) -> None:
        self._client = client
        self._namespace = namespace
        # the server's own clock, unless a test injects one
        self._clock = clock
        self._scripts = {name: register(client, name) for name in script_names()}

    def run(self, name: str, budget: str, *args: str | int) -> Any:
        """Run a script; its first argument is the time of a test, or empty."""
        key = key_of(self._namespace, budget)
        with translate_errors(self._client):
            return self._scripts[name](keys=[key], args=[self._now(), *args])

    def _now(self) -> str | int:
        return "" if self._clock is None else (self._clock() - EPOCH) // MICROSECOND


def key_of(namespace: str, budget: str) -> str:
    """Return the key of a budget; a cluster chooses its slot by the part in braces."""
    return f"penstock:{{{quote(namespace, safe='')}:{quote(budget, safe=':')}}}:budget"


def script_names() -> list[str]:
    files = (resources.files(__package__) / "lua").iterdir()
    return sorted(
        file.name.removesuffix(".lua")
        for file in files
        if file.name.endswith(".lua") and file.name != PREAMBLE
    )


def register(client: Redis, name: str) -> Script:
    folder = resources.files(__package__) / "lua"
    preamble = (folder / PREAMBLE).read_text("utf-8")
    body = (folder / f"{name}.lua").read_text("utf-8")
    return client.register_script(f"{preamble}\n{body}")
