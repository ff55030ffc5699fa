"""SQLite has no notifications: idle workers poll, which is cheap on one machine."""

from datetime import timedelta

from typing_extensions import override

from penstock.ports import WorkNotifier


class NoNotifier(WorkNotifier):
    @property
    @override
    def poll_interval(self) -> timedelta:
        return timedelta(seconds=0.2)

    @property
    @override
    def notification_count(self) -> int:
        return 0
