"""Describe what an import waits for, for a terminal."""

from datetime import UTC, datetime, timedelta

from penstock.domain.waiting import Waiting, WaitReason

REMEDIES = {
    WaitReason.BUDGET_STOPPED: "fix the cause, then: penstock budgets open {}",
    WaitReason.NO_WORKER: "start one with: penstock worker",
    WaitReason.NO_WORKER_IN_REGION: "start one with: penstock worker --region {}",
    WaitReason.OTHER_DECLARATION: "restart the workers with the configuration it "
    "was planned with, or: penstock imports cancel {}",
}


def describe_waiting(waiting: Waiting, *, now: datetime | None = None) -> str:
    """Describe the reason, when it ends, and what can be done."""
    text = waiting.detail
    if waiting.until is not None:
        remaining = waiting.until - (now or datetime.now(UTC))
        seconds = timedelta(seconds=max(round(remaining.total_seconds()), 0))
        text += f", until {waiting.until:%H:%M:%S} UTC ({seconds} left)"
    remedy = REMEDIES.get(waiting.reason)
    return text if remedy is None else f"{text}; {remedy.format(waiting.subject)}"
