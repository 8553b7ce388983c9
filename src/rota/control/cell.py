"""Cell: whether a site is in reach."""

from __future__ import annotations

from rota.api import Cell, Condition
from rota.control.cells.heard import GRACE_SECONDS, Heard
from rota.control.gate import READY, Gate, say, status_of
from rota.control.plane import Plane
from rota.engine import DONE, Context, Done, Outcome

THIS = Condition(type=READY, status="True", reason="ThisServer", message="this server runs it")
LOST = "CellLost"
NOT_JOINED = "NotJoined"


class Cells(Gate[Cell]):
    """Tells of each cell whether something can be placed there. That one reports is written when it does."""

    def __init__(self, plane: Plane, heard: Heard | None = None) -> None:
        super().__init__(Cell)
        self._plane = plane
        self._heard = heard

    async def go_on(self, context: Context, obj: Cell, opened: list[Condition]) -> Outcome:
        name = obj.metadata.name
        if name == self._plane.cell:
            await say(context, obj, [*opened, THIS])
            return DONE
        if status_of(obj).identity is None:
            message = f"nobody has joined under this name: `rota cell join {name}` prints the command to run there"
            await say(
                context, obj, [*opened, Condition(type=READY, status="False", reason=NOT_JOINED, message=message)]
            )
            return DONE
        if self._heard is None:
            return DONE
        silence = self._heard.silence(name)
        if silence < GRACE_SECONDS:
            # Until then it is as the last leader knew it, also where somebody has changed what is placed there.
            known = status_of(obj).condition(READY)
            await say(context, obj, [*opened, *([known] if known is not None else [])])
            return Done(again_after=GRACE_SECONDS - silence)
        message = f"nothing was heard of it for {GRACE_SECONDS:.0f} seconds: what runs there is as it was last told"
        await say(context, obj, [*opened, Condition(type=READY, status="Unknown", reason=LOST, message=message)])
        return DONE
