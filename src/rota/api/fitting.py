"""The quick check of an object's form: code generated once per kind.

Most objects are plainly right. For them one pass of generated Python tells that no field is unknown or null and that
list keys are unique, filling in static defaults on its way, and one pass of msgspec tells that types and bounds hold.
Whatever is not plainly right goes to the thorough walk, which alone words the problems. A property test holds the two
to the same verdict.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from rota.api.schema import Schema

Fit = Callable[[Any], bool]
"""Fills in defaults in place. False: not plainly right, take the thorough walk."""


def fitting(schema: Schema) -> Fit:
    """Generate the quick check of a value with this schema."""
    writer = _Writer()
    entry = writer.struct(schema)
    code = "\n".join(writer.lines)
    exec(compile(code, "<fitting>", "exec"), writer.names)
    fit: Fit = writer.names[entry]
    return fit


class _Writer:
    def __init__(self) -> None:
        self.lines: list[str] = []
        self.names: dict[str, Any] = {"decode": msgspec.json.decode}

    def struct(self, schema: Schema) -> str:
        """Write the function for a struct; returns its name."""
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
        """What must be checked inside a value, beyond what msgspec sees. Nothing, for most."""
        if "properties" in prop:
            return [f"if not {self.struct(prop)}({var}): return False"]
        if "items" in prop:
            return self._list(var, prop)
        if "properties" in prop.get("additionalProperties", {}):
            call = self.struct(prop["additionalProperties"])
            return [
                f"if type({var}) is not dict: return False",
                f"for i in {var}.values():",
                f"    if not {call}(i): return False",
            ]
        return []

    def _list(self, var: str, prop: Schema) -> list[str]:
        lines = [f"if type({var}) is not list: return False"]
        if "properties" in prop["items"]:
            lines += [f"for i in {var}:", f"    if not {self.struct(prop['items'])}(i): return False"]
        list_type = prop.get("x-kubernetes-list-type")
        if list_type == "map":
            keys = prop["x-kubernetes-list-map-keys"]
            identity = ", ".join(f"i.get({key!r})" for key in keys)
            unique = f"len({{({identity},) for i in {var}}})"
        elif list_type == "set":
            unique = f"len({{(type(i), i) if type(i) in (str, int, bool, float) else id(i) for i in {var}}})"
        else:
            return lines if len(lines) > 1 else []
        return [*lines, f"if len({var}) > 1 and {unique} != len({var}): return False"]

    def _constant(self, value: Any) -> str:
        name = f"C{len(self.names)}"
        self.names[name] = value
        return name
