"""Functions where nothing runs them: an operator of a cluster, which has neither code nor workers. That is said."""

from __future__ import annotations

from rota.api import Condition, Function
from rota.control.functions.standing import not_ready
from rota.control.gate import Gate, say
from rota.engine import DONE, Context, Outcome

NOT_SERVED = "NotServed"
CODE_NOT_KEPT = "CodeNotKept"


class UnservedFunctions(Gate[Function]):
    """Says of each function that it is not served here, and of its code, if it must be elsewhere too."""

    def __init__(self) -> None:
        super().__init__(Function)

    async def go_on(self, context: Context, obj: Function, opened: list[Condition]) -> Outcome:
        await say(context, obj, [*opened, verdict(obj)])
        return DONE


def verdict(function: Function) -> Condition:
    """What is said of a function that nobody serves."""
    if function.spec.source.digest is not None:
        return not_ready(
            CODE_NOT_KEPT,
            "a cluster keeps no code by digest, and rota operator runs no functions: deploy it to a server of rota up; "
            "on a cluster, write the code under source.inline, or name what holds it under source.workspaceRef",
        )
    return not_ready(NOT_SERVED, "rota operator runs no functions: deploy it to a server of rota up")
