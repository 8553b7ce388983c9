"""Objects as YAML that reads back as the same object, here and in tools that still read YAML 1.1."""

from __future__ import annotations

from typing import Any

import yaml

from rota.manifest.parse import reads_as_text

_Base: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


class _Dumper(_Base):  # type: ignore[misc]
    """Writes aliases out: a manifest is read by people."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _text(dumper: Any, value: str) -> Any:
    style = "|" if "\n" in value else None if reads_as_text(value) else "'"
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)


_Dumper.add_representer(str, _text)


def dumps(*objects: Any) -> str:
    """The objects as YAML documents, their fields in the order that they have."""
    text: str = yaml.dump_all(
        objects, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=1_000_000, explicit_start=len(objects) > 1
    )
    return text
