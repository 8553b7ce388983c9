"""Cell: whether a site is in reach."""

from __future__ import annotations

from rota.api import Cell, Condition
from rota.control.gate import READY, Gate, say, status_of
from rota.control.plane import Plane
from rota.engine import DONE, Context, Outcome

NOT_SERVED = Condition(
    type=READY,
    status="False",
    reason="NotServed",
    message="this version of Rota connects no other cells: nothing is placed there",
)


class Cells(Gate[Cell]):
    """Tells of each cell whether something can be placed there."""

    def __init__(self, plane: Plane) -> None:
        super().__init__(Cell)
        self._plane = plane

    async def go_on(self, context: Context, obj: Cell, opened: list[Condition]) -> Outcome:
        if obj.metadata.name == self._plane.cell:
            here = Condition(type=READY, status="True", reason="ThisServer", message="this server runs it")
            await say(context, obj, [*opened, here])
            return DONE
        known = status_of(obj).condition(READY)
        # A cell that somebody else reports on is theirs.
        is_nobodys = known is None or known.reason == NOT_SERVED.reason
        await say(context, obj, [*opened, NOT_SERVED] if is_nobodys else opened)
        return DONE
