"""What an import waits for, as a sentence for a terminal."""

from datetime import UTC, datetime, timedelta

from penstock.domain.waiting import Waiting, WaitReason

REMEDIES = {
    WaitReason.BUDGET_STOPPED: "mend the cause, then: penstock budgets open {}",
    WaitReason.NO_WORKER: "start one with: penstock worker",
    WaitReason.NO_WORKER_IN_REGION: "start one with: penstock worker --region {}",
    WaitReason.OTHER_DECLARATION: "restart the workers with the file by which it was "
    "planned, or: penstock imports cancel {}",
}


def describe_waiting(waiting: Waiting, *, now: datetime | None = None) -> str:
    """Write the reason, how long it still holds, and what can be done."""
    text = waiting.detail
    if waiting.until is not None:
        left = waiting.until - (now or datetime.now(UTC))
        seconds = timedelta(seconds=max(round(left.total_seconds()), 0))
        text += f", until {waiting.until:%H:%M:%S} UTC ({seconds} left)"
    remedy = REMEDIES.get(waiting.reason)
    return text if remedy is None else f"{text}; {remedy.format(waiting.subject)}"
