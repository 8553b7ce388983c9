"""The load state of a function's version, in its status and in memory. Pure.

A version is loaded once a worker of it was ready, and has failed once all its workers reported that they cannot load
it. This state stays, also without workers, until a worker reports otherwise or there is a newer version.
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
"""The type of the condition."""
LOADING = "Loading"


class LoadState(NamedTuple):
    state: Literal["Unknown", "Loaded", "Failed"]
    reason: str = ""
    message: str = ""

    def condition(self, waits_for: str = LOADING) -> Condition:
        """Return the condition Loaded. `waits_for` is its reason while the state is Unknown."""
        if self.state == "Unknown":
            return Condition(type=LOADED, status="Unknown", reason=waits_for, message=self.message)
        status: Literal["True", "False"] = "True" if self.state == "Loaded" else "False"
        return Condition(type=LOADED, status=status, reason=self.reason or LOADED, message=self.message)


UNKNOWN = LoadState("Unknown")
IS_LOADED = LoadState("Loaded")


def written(status: FunctionStatus | None, version: str) -> LoadState:
    """Read the load state of a version from a status."""
    if status is None:
        return UNKNOWN
    said = status.condition(LOADED)
    if said is not None and said.status == "False" and status.version == version:
        return LoadState("Failed", said.reason, said.message)
    is_loaded = status.last_loaded is not None and status.last_loaded.version == version
    return IS_LOADED if is_loaded else UNKNOWN


def last_loaded(status: FunctionStatus | None) -> Version | None:
    """Read the version that was loaded last from a status, if this release understands it."""
    if status is None or status.last_loaded is None:
        return None
    try:
        template = msgspec.convert(status.last_loaded.template, FunctionTemplate)
    except msgspec.ValidationError:
        return None  # Another release of Rota wrote it.
    return Version(template, status.last_loaded.version)


def as_loaded(version: Version, now: datetime) -> LoadedVersion:
    return LoadedVersion(version=version.hash, time=now, template=msgspec.to_builtins(version.template))
