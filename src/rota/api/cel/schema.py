"""Checks of a rule's tree: its depth and, against the structure of `self`, the existence of its fields.

The structure is followed through the rule, to find which fields are keys of maps and which lists compare in any order.
What has none, such as a literal, is plain JSON.
"""

from __future__ import annotations

from functools import cache

from rota.api.cel.bounds import BLOCK_DEPTH_MAX, TREE_DEPTH_MAX
from rota.api.cel.errors import CelSyntaxError
from rota.api.cel.syntax import (
    Binary,
    Call,
    Conditional,
    Expr,
    Has,
    Index,
    ListOf,
    Literal,
    Logic,
    Macro,
    Name,
    Not,
    Select,
    unescape,
)
from rota.api.structure import Structure

Scope = dict[str, Structure | None]


@cache
def ignores_order(node: Structure) -> bool:
    """Report whether values of this structure hold a list that compares in any order."""
    visited: set[Structure] = set()
    ahead = [node]
    while ahead:
        inner = ahead.pop()
        if inner in visited:
            continue
        visited.add(inner)
        if inner.kind == "list" and inner.list_type != "atomic":
            return True
        ahead.extend(inner.fields.values())
        if inner.item is not None:
            ahead.append(inner.item)
    return False


def resolve(source: str, tree: Expr, node: Structure | None) -> None:
    """Mark the tree with the structure of its values, derived from that of `self`. Raises `CelSyntaxError`."""
    _Resolver(source).structure(tree, {"self": node, "oldSelf": node})


class _Resolver:
    """Visits every expression once; `structure` returns the structure of its value, if known."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._depth = 0
        self._blocks = 0

    def structure(self, tree: Expr, scope: Scope) -> Structure | None:
        self._depth += 1
        if self._depth > TREE_DEPTH_MAX or self._blocks > BLOCK_DEPTH_MAX:
            raise CelSyntaxError("a rule nested too deep", self._source, tree.position)
        node = self._visit(tree, scope)
        self._depth -= 1
        return node

    def _visit(self, tree: Expr, scope: Scope) -> Structure | None:
        match tree:
            case Name():
                return scope.get(tree.name)
            case Select() | Has():
                return self._field(tree, scope)
            case Index():
                operand = self.structure(tree.operand, scope)
                self.structure(tree.index, scope)
                return None if operand is None else operand.item
            case Binary():
                return self._binary(tree, scope)
            case Conditional():
                self.structure(tree.condition, scope)
                return self._common(tree, [self.structure(branch, scope) for branch in (tree.then, tree.otherwise)])
            case Macro():
                return self._macro(tree, scope)
            case Call():
                for argument in tree.arguments:
                    self.structure(argument, scope)
            case ListOf():
                item = self._common(tree, [self.structure(item, scope) for item in tree.items])
                return None if item is None else Structure("list", item=item)
            case Not():
                self.structure(tree.operand, scope)
            case Logic():
                self._blocks += 1
                for operand_tree in tree.operands:
                    self.structure(operand_tree, scope)
                self._blocks -= 1
            case Literal():
                pass
        return None

    def _field(self, tree: Select | Has, scope: Scope) -> Structure | None:
        operand = self.structure(tree.operand, scope)
        field: Structure | None = None
        if operand is not None and operand.kind == "map":
            tree.is_key = True
            field = operand.item
        elif operand is not None and operand.kind == "struct":
            field = operand.fields.get(unescape(tree.field) or "")
            if field is None:
                raise CelSyntaxError(f"no such field: {tree.field}", self._source, tree.position)
        return field if isinstance(tree, Select) else None

    def _common(self, tree: Expr, nodes: list[Structure | None]) -> Structure | None:
        """Return the structure that all the values share; None if it is unknown or differs.

        Raises `CelSyntaxError` if they differ and one of them has lists that compare in any order.
        """
        if all(node is not None and _alike(node, nodes[0]) for node in nodes):
            return nodes[0] if nodes else None
        if any(node is not None and ignores_order(node) for node in nodes):
            raise CelSyntaxError("values that compare in different ways", self._source, tree.position)
        return None

    def _binary(self, tree: Binary, scope: Scope) -> Structure | None:
        left, right = self.structure(tree.left, scope), self.structure(tree.right, scope)
        if tree.operator in ("==", "!=") and left is not None and ignores_order(left):
            tree.structure = left
        elif tree.operator == "in" and right is not None and right.item is not None and ignores_order(right.item):
            raise CelSyntaxError("the subset has no 'in' of such items", self._source, tree.position)
        return None

    def _macro(self, tree: Macro, scope: Scope) -> Structure | None:
        target = self.structure(tree.target, scope)
        items = target.item if target is not None and target.kind == "list" else None
        inner = scope | {tree.variable: items}
        self._blocks += 2
        body = self.structure(tree.body, inner)
        self._blocks -= 2
        return Structure("list", item=body) if tree.name == "map" and body is not None else None


def _alike(node: Structure, other: Structure | None) -> bool:
    """Report whether both compare in the same way: the same structure, or two lists of scalars of the same type."""
    if node is other:
        return True
    if other is None or node.kind != "list" or other.kind != "list" or node.list_type != other.list_type:
        return False
    return all(inner.item is not None and inner.item.kind == "scalar" for inner in (node, other))
