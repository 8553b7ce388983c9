"""Whether the newest version of a function was loaded: by what is written down, and by what workers say. Pure.

A version counts as loaded when a worker of it could be called once, and as failed when all workers that it had said
that they cannot load it. Either stays, whatever becomes of the workers, until a worker says otherwise or there is a
newer version.
"""

from __future__ import annotations

from datetime import datetime
from typing import Literal, NamedTuple

import msgspec

from rota.api import Condition
from rota.api.function import FunctionStatus, LoadedVersion
from rota.api.instance import FunctionTemplate
from rota.control.functions.planning import Version

LOADED = "Loaded"
"""The condition that says it."""
LOADING = "Loading"


class Known(NamedTuple):
    """What is known of a version."""

    state: Literal["Unknown", "Loaded", "Failed"]
    reason: str = ""
    message: str = ""

    def condition(self, waits_for: str = LOADING) -> Condition:
        """What is said of it; `waits_for` is the reason while nothing is known."""
        if self.state == "Unknown":
            return Condition(type=LOADED, status="Unknown", reason=waits_for, message=self.message)
        status: Literal["True", "False"] = "True" if self.state == "Loaded" else "False"
        return Condition(type=LOADED, status=status, reason=self.reason or LOADED, message=self.message)


UNKNOWN = Known("Unknown")
IS_LOADED = Known("Loaded")


def written(status: FunctionStatus | None, version: str) -> Known:
    """What is written down of a version."""
    if status is None:
        return UNKNOWN
    said = status.condition(LOADED)
    if said is not None and said.status == "False" and status.version == version:
        return Known("Failed", said.reason, said.message)
    is_loaded = status.last_loaded is not None and status.last_loaded.version == version
    return IS_LOADED if is_loaded else UNKNOWN


def last_loaded(status: FunctionStatus | None) -> Version | None:
    """The version that was loaded last, if what is written down of it is understood."""
    if status is None or status.last_loaded is None:
        return None
    try:
        template = msgspec.convert(status.last_loaded.template, FunctionTemplate)
    except msgspec.ValidationError:
        return None  # Written down by another version of Rota.
    return Version(template, status.last_loaded.version)


def as_loaded(version: Version, now: datetime) -> LoadedVersion:
    return LoadedVersion(version=version.hash, time=now, template=msgspec.to_builtins(version.template))
