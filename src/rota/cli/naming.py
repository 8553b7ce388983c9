"""Parse the names of kinds and objects as people write them: `wp`, `WorkerPools`, `wp,task`, `wp/agents`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

from rota.api import KINDS, Kind
from rota.cli.session import CommandError, bad_usage
from rota.cli.usage import did_you_mean

EVERYTHING = ("all", "rota")
"""Words for all of Rota's own kinds."""


class Target(NamedTuple):
    """One object, or all objects of a kind if `name` is empty."""

    kind: Kind
    name: str = ""


@cache
def _by_name() -> dict[str, Kind]:
    names: dict[str, Kind] = {}
    for kind in KINDS.values():
        for name in (kind.singular, kind.plural, *kind.short_names, kind.bucket, qualified(kind)):
            names[name.lower()] = kind
    return names


def kind_named(text: str) -> Kind:
    """Return the kind of a name. Raises CommandError."""
    kind = _by_name().get(text.lower())
    if kind is None:
        raise unknown_kind(text)
    return kind


def unknown_kind(text: str) -> CommandError:
    return bad_usage(
        f'no kind "{text}"{did_you_mean(text, _by_name())}\nthere are {", ".join(map(_listed, KINDS.values()))}'
    )


def _listed(kind: Kind) -> str:
    return f"{kind.plural} ({', '.join(kind.short_names)})" if kind.short_names else kind.plural


def targets(words: Sequence[str]) -> list[Target]:
    """Return the targets of a command line: `KIND[,KIND…]`, `KIND NAME…`, or `KIND/NAME…`. Raises CommandError."""
    if not words:
        raise bad_usage(f"name a kind, such as workerpools; there are {', '.join(map(_listed, KINDS.values()))}")
    if any("/" in word for word in words):
        return [_one(word) for word in words]
    first, *names = words
    kinds = [kind for part in first.split(",") if part for kind in _kinds(part)]
    if names and len(kinds) != 1:
        raise bad_usage("names go with one kind; with several, write KIND/NAME")
    return [Target(kinds[0], name) for name in names] if names else [Target(kind) for kind in dict.fromkeys(kinds)]


def _kinds(part: str) -> list[Kind]:
    if part.lower() in EVERYTHING:
        return [kind for kind in KINDS.values() if kind.custom]
    return [kind_named(part)]


def _one(word: str) -> Target:
    kind, _, name = word.partition("/")
    if not kind or not name or "/" in name:
        raise bad_usage(f'"{word}" is not KIND/NAME')
    return Target(kind_named(kind), name)


def name_in(word: str, kind: Kind) -> str:
    """Return the name of an object of one kind, written alone or as KIND/NAME. Raises CommandError."""
    if "/" not in word:
        return word
    target = _one(word)
    if target.kind is not kind:
        raise bad_usage(f"{word} is no {kind.singular}")
    return target.name


def qualified(kind: Kind) -> str:
    """Return a kind's name with its group: `workerpool.rota.dev`."""
    return f"{kind.singular}.{kind.group}" if kind.group else kind.singular


def reference(kind: Kind, name: str) -> str:
    """Return an object's name for people and programs: `workerpool.rota.dev/agents`."""
    return f"{qualified(kind)}/{name}"


def complete(incomplete: str) -> list[str]:
    """Return the kinds that begin with a text, for the shell."""
    return sorted(name for name in (kind.plural for kind in KINDS.values()) if name.startswith(incomplete.lower()))


def key(obj: dict[str, Any]) -> tuple[str, str]:
    """Return an object's namespace and name."""
    meta = obj["metadata"]
    return meta.get("namespace", ""), meta["name"]
