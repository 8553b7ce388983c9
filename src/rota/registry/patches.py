"""Patches that are not an apply: JSON merge patch (RFC 7386), JSON patch (RFC 6902) and strategic merge patch.

Each returns a new object. It shares sub-values with the target and the patch; neither is changed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from typing import Any

from rota.api.sizes import counted
from rota.registry.strategic import StrategicPatchError as StrategicPatchError
from rota.registry.strategic import strategic_merge as strategic_merge

DEPTH_MAX = 100
"""Bound on the nesting of a patched object. No kind has more than a few dozen levels."""
COPY_BYTES_MAX = 3 * 1024 * 1024
"""Bound on the bytes that the `copy` operations of one JSON patch add: copies of copies grow exponentially."""
COPY_VALUES_MAX = 10_000
"""Bound on the values that they add: each takes far more memory and time than its text."""

INDEX_DIGITS_MAX = 9
_INDEX = re.compile(r"[+-]?[0-9]+")


class JSONPatchError(ValueError):
    """A failed operation of a JSON patch: its index, type and path."""

    def __init__(self, message: str, index: int, op: str, path: str) -> None:
        super().__init__(message)
        self.index = index
        self.op = op
        self.path = path


class JSONPatchTestFailed(JSONPatchError):  # noqa: N818 - it is the test that failed, not the patch
    """A `test` operation found another value."""


class TooManyOperations(ValueError):  # noqa: N818 - says what there is too much of
    """A JSON patch with too many operations."""


def merge_patch(target: Any, patch: Any) -> Any:
    """Return `target` with the members of `patch`: null removes, objects are merged, anything else replaces."""
    if not isinstance(patch, dict):
        return patch
    out = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            out.pop(name, None)
        elif isinstance(value, dict):
            out[name] = merge_patch(out.get(name), value)
        else:
            out[name] = value
    return out


def json_patch(target: Any, ops: Sequence[dict[str, Any]], *, max_ops: int) -> Any:
    """Return `target` after all operations, in order. Raises JSONPatchError if one fails.

    As in Kubernetes, and beyond the RFC: `replace` sets a missing member, `test` takes a missing member
    for null, a missing `value` is null, and a negative index counts from the end.
    """
    if len(ops) > max_ops:
        raise TooManyOperations(f"The allowed maximum operations in a JSON patch is {max_ops}, got {len(ops)}")
    patching = _Patching(target)
    for index, op in enumerate(ops):
        patching.run(index, op)
    if _is_deeper(patching.root, DEPTH_MAX):
        raise JSONPatchError(f"the patched object is nested deeper than {DEPTH_MAX} levels", len(ops) - 1, "patch", "")
    return patching.root


def _is_deeper(value: Any, depth_max: int) -> bool:
    """Report whether a value is nested deeper than a bound.

    Operations that move values into others can nest endlessly.
    """
    level = [value] if isinstance(value, dict | list) else []
    for _ in range(depth_max):
        level = [
            inner
            for one in level
            for inner in (one.values() if isinstance(one, dict) else one)
            if isinstance(inner, dict | list)
        ]
        if not level:
            return False
    return True


class _Problem(Exception):  # noqa: N818 - never leaves this module
    """The reason of a failed operation. It becomes a JSONPatchError once the operation is known."""


class _Patching:
    """One run of a JSON patch: the document so far, and the containers that it may change in place."""

    def __init__(self, root: Any) -> None:
        self.root = root
        # By id, with the containers themselves, so that no id is reused meanwhile.
        self._own: dict[int, Any] = {}
        self._copied_bytes = 0
        self._copied_values = 0
        self._kinds: dict[str, Callable[[dict[str, Any], str], None]] = {
            "add": self._add,
            "remove": self._remove,
            "replace": self._replace,
            "move": self._move,
            "copy": self._copy,
            "test": self._test,
        }

    def run(self, index: int, op: dict[str, Any]) -> None:
        kind, path = (op.get("op"), op.get("path")) if isinstance(op, dict) else (None, None)
        try:
            if not isinstance(kind, str) or kind not in self._kinds:
                raise _Problem(f"Unexpected kind: {kind if isinstance(kind, str) else 'unknown'}")
            if not isinstance(path, str):
                raise _Problem(f"{kind} operation failed to decode path: missing value")
            self._kinds[kind](op, path)
        except _Problem as problem:
            failed = JSONPatchTestFailed if str(problem).endswith(": test failed") else JSONPatchError
            raise failed(str(problem), index, str(kind), str(path)) from None

    def _add(self, op: dict[str, Any], path: str) -> None:
        holder, key = self._find(path, f'add operation does not apply: doc is missing path: "{path}": missing value')
        self._insert(holder, key, op.get("value"), f"error in add for path: '{path}'")

    def _remove(self, op: dict[str, Any], path: str) -> None:
        missing = f'remove operation does not apply: doc is missing path: "{path}": missing value'
        holder, key = self._find(path, missing)
        self._delete(holder, key, f"error in remove for path: '{path}'")

    def _replace(self, op: dict[str, Any], path: str) -> None:
        value = op.get("value")
        if path == "":
            if not isinstance(value, dict | list):
                raise _Problem("replace operation value must be object or array")
            self.root = value
            return
        holder, key = self._find(path, f"replace operation does not apply: doc is missing path: {path}: missing value")
        if isinstance(holder, dict):
            holder[key] = value
            return
        try:
            holder[_index(key, len(holder))] = value
        except _Problem:
            missing = f"replace operation does not apply: doc is missing key: {path}: missing value"
            raise _Problem(missing) from None

    def _move(self, op: dict[str, Any], path: str) -> None:
        source = self._from(op, "move")
        missing = f"move operation does not apply: doc is missing from path: {source}: missing value"
        holder, key = self._find(source, missing)
        value = _get(holder, key, f"error in move for path: '{key}'")
        self._delete(holder, key, f"error in move for path: '{key}'")
        missing = f"move operation does not apply: doc is missing destination path: {path}: missing value"
        holder, key = self._find(path, missing)
        self._insert(holder, key, value, f"error in move for path: '{path}'")

    def _copy(self, op: dict[str, Any], path: str) -> None:
        source = self._from(op, "copy")
        missing = f"copy operation does not apply: doc is missing from path: {source}: missing value"
        holder, key = self._find(source, missing)
        value = _get(holder, key, f"error in copy for from: '{source}'")
        missing = f"copy operation does not apply: doc is missing destination path: {path}: missing value"
        holder, key = self._find(path, missing)
        self._copied_values += counted(value, COPY_VALUES_MAX - self._copied_values)
        if self._copied_values > COPY_VALUES_MAX:
            raise _Problem(f"Unable to complete the copy, all that is copied has more than {COPY_VALUES_MAX} values")
        if _is_deeper(value, DEPTH_MAX):
            raise _Problem(f"Unable to complete the copy, the value is nested deeper than {DEPTH_MAX} levels")
        text = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
        self._copied_bytes += len(text.encode("utf-8", "surrogatepass"))
        if self._copied_bytes > COPY_BYTES_MAX:
            raise _Problem(
                f"Unable to complete the copy, the accumulated size increase of copy is {self._copied_bytes}, "
                f"exceeding the limit {COPY_BYTES_MAX}"
            )
        # A deep copy: a value may be copied into itself, and a change in one place must not show in the other.
        self._insert(holder, key, json.loads(text), "error while adding value during copy")

    def _test(self, op: dict[str, Any], path: str) -> None:
        if path == "":
            found = self.root
        else:
            missing = f"test operation does not apply: is missing path: {path}: missing value"
            holder, key = self._find(path, missing)
            found = _get(holder, key, f"error in test for path: '{path}'")
        if not _equal(found, op.get("value")):
            raise _Problem(f"testing value {path} failed: test failed")

    def _from(self, op: dict[str, Any], kind: str) -> str:
        source = op.get("from")
        if not isinstance(source, str):
            raise _Problem(f"{kind} operation failed to decode from: operation, missing from field: missing value")
        return source

    def _find(self, path: str, missing: str) -> tuple[Any, str]:
        """Return a changeable container of the last step of `path`, and that step."""
        if not path.startswith("/"):
            raise _Problem(missing)
        *steps, last = (step.replace("~1", "/").replace("~0", "~") for step in path[1:].split("/"))
        self.root = holder = self._owned(self.root, missing)
        for step in steps:
            try:
                key: Any = step if isinstance(holder, dict) else _index(step, len(holder))
                child = holder[key]
            except (_Problem, KeyError):
                raise _Problem(missing) from None
            holder[key] = holder = self._owned(child, missing)
        return holder, last

    def _owned(self, container: Any, missing: str) -> Any:
        if id(container) in self._own:
            return container
        if not isinstance(container, dict | list):
            raise _Problem(missing)
        own = container.copy()
        self._own[id(own)] = own
        return own

    def _insert(self, holder: Any, key: str, value: Any, context: str) -> None:
        if isinstance(holder, dict):
            holder[key] = value
        elif key == "-":
            holder.append(value)
        else:
            if not _INDEX.fullmatch(key) or len(key) > INDEX_DIGITS_MAX:
                raise _Problem(f"{context}: value was not a proper array index: '{key}'")
            holder.insert(_index(key, len(holder) + 1, context), value)

    def _delete(self, holder: Any, key: str, context: str) -> None:
        if isinstance(holder, list):
            del holder[_index(key, len(holder), context)]
        elif key in holder:
            del holder[key]
        else:
            raise _Problem(f"{context}: Unable to remove nonexistent key: {key}: missing value")


def _get(holder: Any, key: str, context: str) -> Any:
    return holder.get(key) if isinstance(holder, dict) else holder[_index(key, len(holder), context)]


def _index(key: str, size: int, context: str = "") -> int:
    prefix = f"{context}: " if context else ""
    if not _INDEX.fullmatch(key):
        raise _Problem(f'{prefix}strconv.Atoi: parsing "{key[:40]}": invalid syntax')
    index = int(key)
    if not -size <= index < size:
        raise _Problem(f"{prefix}Unable to access invalid index: {index}: invalid index referenced")
    return index + size if index < 0 else index


def _equal(a: Any, b: Any) -> bool:
    """JSON equality: numbers by value, but true is not 1."""
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(_equal(value, b[key]) for key, value in a.items())
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(_equal, a, b))
    return bool(a == b) and isinstance(a, bool) == isinstance(b, bool)
