"""Where the functions of a deploy are called."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rota.client import Client
    from rota.manifest.deploy import Deployment

URL_SECONDS_MAX = 2.0
"""How long a server may take to say where. It says so at once, unless its controllers do not run."""
URLS_MAX = 20
"""Functions of which it is told."""


async def urls_of(client: Client, deployment: Deployment) -> dict[str, str]:
    """Where the functions that were made or changed are called, as far as the server says so."""
    from rota.api import Function
    from rota.client import ConnectionFailed
    from rota.manifest.project_format import PROJECT_LABEL
    from rota.registry import ApiError

    steps = [step for step in deployment.steps if step.kind is Function.api and step.outcome != "unchanged"]
    found = dict.fromkeys([step.name for step in steps][:URLS_MAX], "")
    if found:
        # It is deployed all the same when nothing is said.
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
