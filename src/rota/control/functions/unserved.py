"""Functions where nothing runs them: an operator of a cluster, which has no workers for them. That is said."""

from __future__ import annotations

from rota.api import Condition, Function
from rota.control.functions.standing import not_ready
from rota.control.gate import Gate, write_conditions
from rota.engine import DONE, Context, Outcome

NOT_SERVED = "NotServed"
WHY = "`rota operator` runs no functions yet, wherever their code is: deploy it to a server that `rota start` started"


class UnservedFunctions(Gate[Function]):
    """Says of each function that it is not served here."""

    def __init__(self) -> None:
        super().__init__(Function)

    async def go_on(self, context: Context, obj: Function, opened: list[Condition]) -> Outcome:
        await write_conditions(context, obj, [*opened, not_ready(NOT_SERVED, WHY)])
        return DONE
