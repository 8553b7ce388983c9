"""Sizes of the tables of a server that outlive a request. Whatever leaves the store has to leave these too.

Tables are found by looking through what the server is made of, so that none is left out: every dict, set, list and
deque that an object of Rota's has as an attribute, with the tables in it, and every cache of a function.
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
"""What objects are made of, not what the server is."""
TABLES = (dict, set, list, deque, WeakValueDictionary)
PLAIN = frozenset((str, bytes, int, float, bool, type(None)))
LOOKED_INTO_MAX = 1_000
"""Entries of one table that are looked into for tables of their own."""
BARREN_MAX = 20
"""After so many objects of a class that lead to no tables, the others of it are taken to lead to none either."""
DEPTH_MAX = 8
"""Of tables in tables."""


class Tables:
    """The tables of a server, as a metric: those of its parts, and of all that these are made of."""

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
        """Have what is in these counted."""
        self._roots += roots

    def render(self) -> bytes:
        """As text for a monitoring system."""
        return self._metrics.render()

    def sizes(self) -> dict[str, int]:
        """How many entries each table has; tables of the same name, of several objects, together."""
        found = _Survey()
        for root in self._roots:
            found.look(root)
        sizes = found.sizes
        sizes.update(_caches())
        sizes["asyncio.tasks"] = len(asyncio.all_tasks())
        return dict(sizes)


class _Survey:
    """One look through what there is. Each object is looked at once."""

    def __init__(self) -> None:
        self.sizes: Counter[str] = Counter()
        self._seen: set[int] = set()
        self._barren: Counter[type] = Counter()
        self._coming: list[Any] = []

    def look(self, root: object) -> None:
        self._coming.append(root)
        while self._coming:
            # The last first: what an object leads to is known before the next of its class.
            obj = self._coming.pop()
            if self._is_new(obj):
                self._seen.add(id(obj))
                self._look_at(obj)

    def _is_new(self, obj: object) -> bool:
        return id(obj) not in self._seen and self._barren[type(obj)] < BARREN_MAX

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
        if id(table) in self._seen or depth > DEPTH_MAX:
            return
        self._seen.add(id(table))
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
    """The objects of Rota's that a value is, or that are in it."""
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
    """Of functions that remember what they returned."""
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
