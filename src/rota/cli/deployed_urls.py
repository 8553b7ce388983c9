"""Look up the URLs of the functions of a deploy."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rota.client import Client
    from rota.manifest.deploy import Deployment

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
