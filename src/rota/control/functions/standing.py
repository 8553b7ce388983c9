"""How a function stands: whether the version that is wanted answers its calls, and which code does. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

from rota.api import Condition, Function, Instance
from rota.control.functions.planning import Version
from rota.control.gate import READY


class Standing(NamedTuple):
    """What is said of a function."""

    ready: Condition
    digest: str | None
    """Of the code that answers calls, or would; None: it is in a workspace."""


def standing(
    function: Function,
    version: Version,
    instances: Sequence[Instance],
    *,
    callable_: Collection[str],
    failures: Sequence[Condition],
) -> Standing:
    """`callable_`: workers that can be called, by uid. `failures`: why workers of this version cannot be."""
    staying = [one for one in instances if one.metadata.deletion_timestamp is None]
    current = [one for one in staying if one.spec.template_hash == version.hash]
    outdated = [one for one in staying if one.spec.template_hash != version.hash]
    ready = sum(one.metadata.uid in callable_ for one in current)
    digest = _code(version)
    if not ready and outdated:
        digest = outdated[0].spec.handler.code if outdated[0].spec.handler is not None else None
    elif not ready and failures:
        # It answers nothing: what did before is the last that did.
        digest = function.status.digest if function.status is not None else None
    return Standing(_ready(function, version, ready, current, outdated, failures), digest)


def _code(version: Version) -> str | None:
    return version.template.handler.code if version.template.handler is not None else None


def _ready(
    function: Function,
    version: Version,
    ready: int,
    current: Sequence[Instance],
    outdated: Sequence[Instance],
    failures: Sequence[Condition],
) -> Condition:
    least = function.spec.scale.min
    if failures:
        return failures[0]
    if not ready and outdated:
        return not_ready("Updating", "the version before answers calls until a worker of this one can be called")
    if ready < least:
        return not_ready("Starting", f"{ready} of {least} workers can be called")
    if ready:
        return Condition(type=READY, status="True", reason="Ready")
    if current:
        return Condition(type=READY, status="True", reason="Scaling")
    unseen = "" if _code(version) is not None else "its code is in a workspace, and is fetched when it is called"
    return Condition(type=READY, status="True", reason="ScaledToZero", message=unseen)


def not_ready(reason: str, message: str) -> Condition:
    return Condition(type=READY, status="False", reason=reason, message=message)
