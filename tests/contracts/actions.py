"""What every log of actions must do."""

from collections.abc import Callable
from datetime import timedelta

from penstock.domain.actions import Action, ActionVia
from penstock.ports import Stores
from tests.support.builders import HOUR, MINUTE


def action(number: int) -> Action:
    return Action(
        actor="ann", name="cancelImport", subject=f"imports/{number}", via=ActionVia.API
    )


class ActionsContract:
    """Subclasses bring `stores` and `pass_time`."""

    def test_actions_are_listed_the_newest_first(
        self, stores: Stores, pass_time: Callable[[timedelta], None]
    ):
        for number in range(3):
            stores.actions.add(action(number))
            pass_time(MINUTE)

        first = stores.actions.recent(before=None, limit=2)
        rest = stores.actions.recent(before=first[-1].id, limit=2)

        assert [each.action for each in (*first, *rest)] == [
            action(2),
            action(1),
            action(0),
        ]
        assert first[0].at - first[1].at == MINUTE

    def test_old_actions_are_forgotten_in_batches(
        self, stores: Stores, pass_time: Callable[[timedelta], None]
    ):
        for number in range(3):
            stores.actions.add(action(number))
        pass_time(HOUR + MINUTE)
        stores.actions.add(action(9))

        assert stores.actions.count_old(age=HOUR) == 3
        forgotten = [stores.actions.forget(age=HOUR, most=2) for _ in range(3)]

        assert forgotten == [2, 1, 0]
        (left,) = stores.actions.recent(before=None, limit=9)
        assert left.action == action(9)
