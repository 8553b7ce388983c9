"""The Cell controller: it sets the condition Ready of each site."""

from __future__ import annotations

from rota.api import Cell, Condition
from rota.control.cells.contacts import GRACE_SECONDS, CellContacts
from rota.control.gate import READY, Gate, status_of, write_conditions
from rota.control.plane import Plane
from rota.engine import DONE, Context, Done, Outcome

THIS = Condition(type=READY, status="True", reason="ThisServer", message="this server runs it")
LOST = "CellLost"
NOT_JOINED = "NotJoined"


class Cells(Gate[Cell]):
    """Marks the own cell as ready, and a silent one as lost. A cell that reports is marked by its report."""

    def __init__(self, plane: Plane, contacts: CellContacts | None = None) -> None:
        super().__init__(Cell)
        self._plane = plane
        self._contacts = contacts

    async def go_on(self, context: Context, obj: Cell, opened: list[Condition]) -> Outcome:
        name = obj.metadata.name
        if name == self._plane.cell:
            await write_conditions(context, obj, [*opened, THIS])
            return DONE
        if status_of(obj).identity is None:
            message = f"nobody has joined under this name: `rota cell join {name}` prints the command to run there"
            await write_conditions(
                context, obj, [*opened, Condition(type=READY, status="False", reason=NOT_JOINED, message=message)]
            )
            return DONE
        if self._contacts is None:
            return DONE
        silence = self._contacts.silence(name)
        if silence < GRACE_SECONDS:
            # Until then the condition of the last leader stays.
            known = status_of(obj).condition(READY)
            await write_conditions(context, obj, [*opened, *([known] if known is not None else [])])
            return Done(again_after=GRACE_SECONDS - silence)
        message = f"it has not reported for {GRACE_SECONDS:.0f} seconds: the status of what runs there is its last one"
        await write_conditions(
            context, obj, [*opened, Condition(type=READY, status="Unknown", reason=LOST, message=message)]
        )
        return DONE
