"""A compiled rule."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from rota.api.cel.errors import BeyondSubsetError, CelEvalError
from rota.api.cel.parser import parse
from rota.api.cel.schema import resolve
from rota.api.cel.syntax import Expr
from rota.api.structure import Structure

_NO_VALUE: Final = object()


class Program:
    """A parsed and checked rule. Its Python code is generated when it is first evaluated: many rules never are."""

    __slots__ = ("_evaluate", "_tree", "source", "uses_old")

    def __init__(self, source: str, tree: Expr, *, uses_old: bool) -> None:
        self.source: Final = source
        self.uses_old: Final = uses_old
        self._tree = tree
        self._evaluate: Callable[[Any, Any], Any] = self._generate

    def __call__(self, self_value: Any, old_value: Any = _NO_VALUE) -> Any:
        """Evaluate the rule for an object, and its predecessor where the rule asks for it. Raises `CelEvalError`."""
        if self.uses_old and old_value is _NO_VALUE:
            raise CelEvalError("no such variable: oldSelf")
        try:
            return self._evaluate(self_value, old_value)
        except CelEvalError:
            raise
        except AttributeError:
            raise CelEvalError("no such overload: a field of a value that has none") from None
        except (BeyondSubsetError, RecursionError) as error:
            raise CelEvalError(str(error)) from None

    def __repr__(self) -> str:
        return f"Program({self.source!r})"

    def _generate(self, self_value: Any, old_value: Any) -> Any:
        from rota.api.cel.codegen import generate

        self._evaluate = generate(self._tree)
        return self._evaluate(self_value, old_value)


def compile(source: str, node: Structure | None = None) -> Program:  # noqa: A001
    """Compile the text of a rule. Raises `CelSyntaxError`.

    `node` is the structure of the value the rule is about. With it, unknown fields are refused, and lists of type `set`
    and `map` compare in any order, as in a kube-apiserver; without it, all lists are atomic and all maps are objects.
    """
    tree, uses_old = parse(source)
    resolve(source, tree, node)
    return Program(source, tree, uses_old=uses_old)
