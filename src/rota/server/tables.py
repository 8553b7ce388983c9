"""Sizes of the tables of a server that outlive a request. Entries of deleted objects must not stay in them.

Tables are found by walking the server's objects, so that none is missed: every dict, set, list and deque that is an
attribute of one of Rota's objects, the tables in it, and every cache of a function.
"""

from __future__ import annotations

import asyncio
import functools
import sys
import types
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any
from weakref import WeakValueDictionary

from msgspec import Struct

from rota.engine.metrics import Metrics

PACKAGE = "rota."
DATA = ("rota.api.",)
"""Modules whose objects are data, and are not searched."""
TABLES = (dict, set, list, deque, WeakValueDictionary)
PLAIN = frozenset((str, bytes, int, float, bool, type(None)))
LOOKED_INTO_MAX = 1_000
"""Entries of one table that are searched for further tables."""
BARREN_MAX = 20
"""Objects of a class without tables after which the rest of the class is skipped."""
DEPTH_MAX = 8
"""Levels of tables in tables."""


class Tables:
    """The tables of a server's parts, as a metric."""

    def __init__(self) -> None:
        self._roots: list[object] = []
        self._metrics = Metrics()
        self._metrics.gauge(
            "rota_table_entries",
            "Entries of a table that the server keeps in memory.",
            ("table",),
            read=lambda: {(name,): count for name, count in self.sizes().items()},
        )

    def add(self, *roots: object) -> None:
        """Include the tables of these objects."""
        self._roots += roots

    def render(self) -> bytes:
        """Return the metric in Prometheus' text format."""
        return self._metrics.render()

    def sizes(self) -> dict[str, int]:
        """Return the number of entries by table. Tables of the same name are added up."""
        found = _Survey()
        for root in self._roots:
            found.look(root)
        sizes = found.sizes
        sizes.update(_caches())
        sizes["asyncio.tasks"] = len(asyncio.all_tasks())
        return dict(sizes)


class _Survey:
    """One walk through the objects. Each object is visited once."""

    def __init__(self) -> None:
        self.sizes: Counter[str] = Counter()
        self._visited: set[int] = set()
        self._barren: Counter[type] = Counter()
        self._coming: list[Any] = []

    def look(self, root: object) -> None:
        self._coming.append(root)
        while self._coming:
            # Depth first, so that the content of an object is known before the next one of its class.
            obj = self._coming.pop()
            if self._is_new(obj):
                self._visited.add(id(obj))
                self._look_at(obj)

    def _is_new(self, obj: object) -> bool:
        return id(obj) not in self._visited and self._barren[type(obj)] < BARREN_MAX

    def _look_at(self, obj: Any) -> None:
        class_: Any = type(obj)
        name = f"{class_.__module__.removeprefix(PACKAGE)}.{class_.__qualname__}"
        is_barren = True
        for attribute, value in _attributes(obj):
            if type(value) in PLAIN:
                continue
            if isinstance(value, TABLES):
                is_barren = False
                self._count(f"{name}.{attribute.lstrip('_')}", value)
            elif parts := [part for part in _parts(value) if self._is_new(part)]:
                is_barren = False
                self._coming.extend(parts)
        self._barren[class_] += is_barren

    def _count(self, name: str, table: Any, depth: int = 0) -> None:
        if id(table) in self._visited or depth > DEPTH_MAX:
            return
        self._visited.add(id(table))
        self.sizes[name] += len(table)
        values = table.values() if isinstance(table, Mapping) else table
        for value in islice(values, LOOKED_INTO_MAX):
            class_ = type(value)
            if class_ in PLAIN or self._barren[class_] >= BARREN_MAX:
                continue
            if isinstance(value, TABLES):
                self._count(f"{name}[]", value, depth + 1)
            elif parts := _parts(value):
                self._coming.extend(parts)
            else:
                self._barren[class_] += 1


def _attributes(obj: Any) -> Iterator[tuple[str, Any]]:
    class_: Any = type(obj)
    for name in (*getattr(obj, "__dict__", ()), *_slots(class_)):
        try:
            yield name, getattr(obj, name)
        except AttributeError:
            continue


@functools.cache
def _slots(class_: type) -> tuple[str, ...]:
    names: list[str] = []
    for one in class_.__mro__:
        slots = one.__dict__.get("__slots__", ())
        names += (slots,) if isinstance(slots, str) else slots
    if issubclass(class_, Struct):
        names += class_.__struct_fields__
    return tuple(dict.fromkeys(names))


def _parts(value: Any) -> Sequence[Any]:
    """Return the objects of Rota that a value is or contains."""
    if isinstance(value, types.FunctionType):
        found = [cell.cell_contents for cell in value.__closure__ or () if cell != types.CellType()]
    elif isinstance(value, types.MethodType):
        found = [value.__self__]
    elif isinstance(value, functools.partial):
        found = [value.func, *value.args]
    elif isinstance(value, tuple):
        found = [*value]
    else:
        return (value,) if _is_ours(value) else ()
    return [part for one in found if one is not value for part in (_parts(one) if not isinstance(one, TABLES) else ())]


def _is_ours(value: object) -> bool:
    module = type(value).__module__
    return module.startswith(PACKAGE) and not module.startswith(DATA) and not isinstance(value, type)


def _caches() -> dict[str, int]:
    """Return the sizes of the caches of functions."""
    modules = tuple(name for name in sys.modules if name.startswith(PACKAGE))
    return {name: function.cache_info().currsize for name, function in _functions_with_caches(modules).items()}


@functools.lru_cache(maxsize=1)
def _functions_with_caches(modules: tuple[str, ...]) -> dict[str, Any]:
    return {
        f"{module}.{name.lstrip('_')}()".removeprefix(PACKAGE): value
        for module in modules
        for name, value in [*vars(sys.modules[module]).items()]
        if hasattr(value, "cache_info") and getattr(value, "__module__", "") == module
    }
