"""The quick check of objects: code that is generated once for each kind.

Most objects are valid. For them one pass of generated Python checks that no field is unknown or null and that
list keys are unique, and fills in static defaults; one pass of msgspec checks types and bounds.
Any other object goes to the thorough walk, which alone reports problems. A property test holds the two
to the same verdict.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import msgspec

from rota.api.model import TIME_PATTERN, exact
from rota.api.schema import PRESERVE, Schema
from rota.api.structure import too_deep

INTEGER_MIN, INTEGER_MAX = -(2**63), 2**63 - 1
TIME = re.compile(exact(TIME_PATTERN)).search

QuickCheck = Callable[[Any], bool]
"""Fills in defaults in place. Returns False if the thorough walk must look at the object."""


def quick_check(schema: Schema) -> QuickCheck:
    """Generate the quick check of a value with this schema."""
    writer = _Writer()
    entry = writer.struct(schema)
    code = "\n".join(writer.lines)
    exec(compile(code, "<quick check>", "exec"), writer.names)
    fit: QuickCheck = writer.names[entry]
    return fit


class _Writer:
    def __init__(self) -> None:
        self.lines: list[str] = []
        self.names: dict[str, Any] = {"decode": msgspec.json.decode}

    def struct(self, schema: Schema) -> str:
        """Write the function of a struct. Return its name."""
        body: list[str] = []
        known = self._constant(frozenset(schema["properties"]))
        body.append(f"if type(o) is not dict or not {known}.issuperset(o) or None in o.values(): return False")
        for name, prop in schema["properties"].items():
            body.extend(self._field(name, prop))
        body.append("return True")
        function = f"fit{len(self.names)}"
        self.names[function] = None
        self.lines.append(f"def {function}(o):")
        self.lines.extend("    " + line for line in body)
        return function

    def _field(self, name: str, prop: Schema) -> list[str]:
        if "default" in prop:
            default = prop["default"]
            mutable = isinstance(default, dict | list)
            fresh = f"decode({msgspec.json.encode(default)!r})" if mutable else repr(default)
            lines = [f"if {name!r} not in o: o[{name!r}] = {fresh}"]
            inner = self._inside("v", prop)
            return [*lines, "else:", f"    v = o[{name!r}]", *("    " + line for line in inner)] if inner else lines
        inner = self._inside("v", prop)
        return [f"v = o.get({name!r})", "if v is not None:", *("    " + line for line in inner)] if inner else []

    def _inside(self, var: str, prop: Schema) -> list[str]:
        """Return the statements for checks inside a value that msgspec does not make; for most values there are
        none."""
        if prop.get(PRESERVE):
            return [f"if {self._constant(too_deep)}({var}): return False"]
        if "properties" in prop:
            return [f"if not {self.struct(prop)}({var}): return False"]
        if "items" in prop:
            return self._list(var, prop)
        if "additionalProperties" in prop:
            inner = self._each(f"{var}.values()", f"{var}i", prop["additionalProperties"])
            return [f"if type({var}) is not dict: return False", *inner] if inner else []
        if prop.get("format") == "date-time":
            return [f"if type({var}) is not str or not {self._constant(TIME)}({var}): return False"]
        if prop.get("x-kubernetes-int-or-string"):
            return [f"if type({var}) is int and {var} > {INTEGER_MAX}: return False"]
        if prop.get("type") == "integer" and not {"minimum", "maximum"} <= prop.keys():
            return [f"if type({var}) is not int or not {INTEGER_MIN} <= {var} <= {INTEGER_MAX}: return False"]
        return []

    def _list(self, var: str, prop: Schema) -> list[str]:
        item = f"{var}i"
        lines = self._each(var, item, prop["items"])
        list_type = prop.get("x-kubernetes-list-type")
        if list_type == "map":
            keys = prop["x-kubernetes-list-map-keys"]
            identity = ", ".join(f"{item}.get({key!r})" for key in keys)
            lines += [
                f"if len({var}) > 1:",
                f"    keys = [({identity},) for {item} in {var}]",
                "    if not all(type(part) is str for key in keys for part in key): return False",
                f"    if len(set(keys)) != len({var}): return False",
            ]
        elif list_type == "set":
            lines += [
                f"if not all(type({item}) is str for {item} in {var}): return False",
                f"if len(set({var})) != len({var}): return False",
            ]
        return [f"if type({var}) is not list: return False", *lines] if lines else []

    def _each(self, values: str, item: str, schema: Schema) -> list[str]:
        """Return the statements that check each of several values."""
        inner = self._inside(item, schema)
        return [f"for {item} in {values}:", *("    " + line for line in inner)] if inner else []

    def _constant(self, value: Any) -> str:
        name = f"C{len(self.names)}"
        self.names[name] = value
        return name
