"""Where the hooks of the settings lead."""

import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from datetime import UTC, datetime, timedelta
from typing import Any

from typing_extensions import override

from penstock.domain.hooks import Hook, HookFunction, Webhook
from penstock.errors import Misconfigured
from penstock.ports import Diagnostic
from penstock.ports.hooks import DeliveryFailed, HookTarget, new_test_message
from penstock.settings import Settings
from penstock.wiring.user_functions import load_function

# how long a function may take
CALL_TIMEOUT = timedelta(seconds=20)


def describe_target(hook: Hook) -> str:
    """Return what distinguishes one target of a hook from another, but its secret."""
    target = hook.target
    if isinstance(target, Webhook):
        return f"{target.url} {target.allow_private}"
    return target.path


def build_hook_target(settings: Settings, hook: Hook) -> HookTarget:
    """Build what delivers the messages of a hook."""
    if isinstance(hook.target, HookFunction):
        return FunctionTarget(settings, hook.name, hook.target)
    from penstock.adapters.http.webhook import WebhookTarget

    return WebhookTarget(hook.name, hook.target)


def check_hook_functions(settings: Settings) -> None:
    """Raise `Misconfigured` if a function cannot be imported."""
    for hook in settings.hooks.values():
        if isinstance(hook.target, HookFunction):
            load_hook_function(settings, hook.name, hook.target)


def try_hooks(settings: Settings) -> Iterator[Diagnostic]:
    """Send each hook a test message, and yield whether it was confirmed."""
    for name, hook in settings.hooks.items():
        message = new_test_message(at=datetime.now(UTC))
        what = f"hooks.{name}"
        try:
            build_hook_target(settings, hook).deliver(message)
        except DeliveryFailed as error:
            text = settings.redact(str(error))
            yield Diagnostic(what=what, is_ok=False, message=text)
        else:
            text = f"has confirmed the test message {message['id']}"
            yield Diagnostic(what=what, is_ok=True, message=text)


def load_hook_function(
    settings: Settings, name: str, function: HookFunction
) -> Callable[[dict[str, Any]], Any]:
    return load_function(settings, function.path, setting=f"hooks.{name}.call")


class FunctionTarget(HookTarget):
    """Calls a function in a thread of its own, for which it does not wait for ever.

    It is imported at the first call: a process that only serves works without it.
    """

    def __init__(
        self,
        settings: Settings,
        name: str,
        function: HookFunction,
        *,
        timeout: timedelta = CALL_TIMEOUT,
    ) -> None:
        self._settings = settings
        self._name = name
        self._function = function
        self._timeout = timeout
        self._call: threading.Thread | None = None

    @override
    def deliver(self, document: Mapping[str, Any]) -> None:
        path = self._function.path
        if self._call is not None and self._call.is_alive():
            raise DeliveryFailed(f"{path} has not returned from an earlier call")
        try:
            function = load_hook_function(self._settings, self._name, self._function)
        except Misconfigured as error:
            raise DeliveryFailed(str(error)) from error
        end: Future[None] = Future()
        self._call = threading.Thread(
            target=call,
            args=(function, dict(document), end),
            name=f"hook-{self._name}",
            daemon=True,
        )
        self._call.start()
        try:
            end.result(self._timeout.total_seconds())
        except Exception as error:
            if not end.done():
                seconds = self._timeout.total_seconds()
                raise DeliveryFailed(
                    f"{path} did not return within {seconds:g} s"
                ) from error
            raise DeliveryFailed(
                f"{path} raised {type(error).__name__}: {error}"
            ) from error


def call(
    function: Callable[[dict[str, Any]], Any],
    document: dict[str, Any],
    end: "Future[None]",
) -> None:
    try:
        function(document)
    except BaseException as error:  # noqa: BLE001 (raised by the waiting thread)
        end.set_exception(
            error if isinstance(error, Exception) else RuntimeError(repr(error))
        )
    else:
        end.set_result(None)
