"""The functions of a deploy: wait until they are loaded, and look up their URLs."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rota.cli.function_states import State, state_of, states
from rota.cli.output import note
from rota.cli.session import FAILED

if TYPE_CHECKING:
    from rota.client import Client
    from rota.manifest.deploy import Deployment
    from rota.manifest.project import Project

QUIET_SECONDS = 2.0
"""Time before a message says that something is waited for."""
NAMED_MAX = 5
"""Functions that the message names."""
PROGRESS = ("Loading", "Preparing", "Starting", "Updating")
_PLACE = re.compile(r"\(([^():\s]{1,500}):(\d{1,9})\)$")

OnDecided = Callable[[str, State], None]


async def until_loaded(client: Client, deployment: Deployment, seconds: float, on_decided: OnDecided) -> int:
    """Wait until each function of a deploy is loaded or cannot be. Returns the exit code."""

    names = waited_for(deployment)
    if not names:
        return 0
    missing = set(names)

    def learned(name: str, state: State) -> None:
        missing.discard(name)
        on_decided(name, located(state, deployment.project, name))

    def note_wait() -> None:
        shown = ", ".join(f"Function/{name}" for name in sorted(missing)[:NAMED_MAX])
        more = f" and {len(missing) - NAMED_MAX} more" if len(missing) > NAMED_MAX else ""
        note(f"waiting until {shown}{more} can be called; `--no-wait` does without")

    timer = asyncio.get_running_loop().call_later(QUIET_SECONDS, note_wait)
    try:
        found = await states(client, names, seconds, learned)
    finally:
        timer.cancel()
    return FAILED if any(one.verdict in ("NotLoaded", "Coming", "Gone") for one in found.values()) else 0


def waited_for(deployment: Deployment) -> list[str]:
    """Return the functions that are new or changed, and unchanged ones that are not loaded yet, or could not be."""
    from rota.api import Function

    found = []
    for step in deployment.steps:
        if step.kind is not Function.api:
            continue
        before = state_of(step.live)
        if step.outcome != "unchanged" or before.verdict == "NotLoaded" or before.reason in PROGRESS:
            found.append(step.name)
    return found


def located(state: State, project: Project, name: str) -> State:
    """Return a state whose message names the local file, not the packed one."""
    from rota.api import Function

    found = _PLACE.search(state.message)
    bodies = [one.object for one in project.manifests if one.kind is Function.api and one.name == name]
    digest = ((bodies[0].get("spec") or {}).get("source") or {}).get("digest") if bodies else None
    place = project.places.get(digest or "")
    if found is None or place is None:
        return state
    file = place / found[1] if place.is_dir() else place
    if not file.is_file():
        return state
    shown = f"({os.path.relpath(file, Path.cwd())}:{found[2]})"
    return state._replace(message=state.message[: found.start()] + shown)


URL_SECONDS_MAX = 2.0
"""Time for a server to report the URLs. It does so at once unless its controllers do not run."""
URLS_MAX = 20
"""Functions whose URLs are printed."""


async def urls_of(client: Client, deployment: Deployment) -> dict[str, str]:
    """Return the URLs of the functions that were created or changed, as far as the server reports them."""
    from rota.api import Function
    from rota.client import ConnectionFailed
    from rota.manifest.project_format import PROJECT_LABEL
    from rota.registry import ApiError

    steps = [step for step in deployment.steps if step.kind is Function.api and step.outcome != "unchanged"]
    found = dict.fromkeys([step.name for step in steps][:URLS_MAX], "")
    if found:
        # The deploy has succeeded even if the URLs cannot be read.
        with contextlib.suppress(TimeoutError, ApiError, ConnectionFailed):
            async with asyncio.timeout(URL_SECONDS_MAX):
                watching: Any = client.watch(Function.api, labels=f"{PROJECT_LABEL}={deployment.project.name}")
                async with contextlib.aclosing(watching) as changes:
                    async for change in changes:
                        obj = change.object or {"metadata": {"name": ""}}
                        name, url = obj["metadata"]["name"], (obj.get("status") or {}).get("url")
                        if name in found and url:
                            found[name] = url
                        if all(found.values()):
                            break
    return {name: url for name, url in found.items() if url}
