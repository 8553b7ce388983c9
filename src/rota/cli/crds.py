"""`rota crds`."""

from __future__ import annotations

import asyncio
import json
from typing import Annotated, Any

import typer

from rota.cli.command import command
from rota.cli.options import ManifestFormat, Output, seconds
from rota.cli.output import print_line
from rota.cli.session import MANAGER, CommandError, Session, bad_usage

PATH = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
POLL_SECONDS = 0.1


@command
async def crds(
    session: Session,
    output: Output = ManifestFormat.yaml,
    install: Annotated[bool, typer.Option("--install", help="Install them on the cluster of --context.")] = False,
    within: Annotated[
        str,
        typer.Option("--timeout", metavar="SPAN", help="Wait at most this long for the cluster to serve the kinds."),
    ] = "60s",
) -> None:
    """Print the kinds as CustomResourceDefinitions, or install them on a Kubernetes cluster."""
    from rota.api.crd import crds as definitions

    if install:
        if not session.settings.context:
            raise bad_usage("--install needs --context: the cluster that is meant is never guessed")
        await _install(session, definitions(), seconds(within))
    elif output is ManifestFormat.json:
        print_line(json.dumps({"apiVersion": "v1", "kind": "List", "items": definitions()}, indent=2))
    else:
        from rota.manifest import dumps

        print_line(dumps(*definitions()).rstrip("\n"))


async def _install(session: Session, definitions: list[dict[str, Any]], limit_seconds: float) -> None:
    from rota.cli.gateway import backend_of

    async with session.client() as client:
        backend = backend_of(client)
        for definition in definitions:
            await backend.raw(
                "PATCH",
                f"{PATH}/{definition['metadata']['name']}?fieldManager={MANAGER}&force=true",
                json.dumps(definition).encode(),
                {"Content-Type": "application/apply-patch+yaml"},
            )
        try:
            async with asyncio.timeout(limit_seconds):
                for definition in definitions:
                    name = definition["metadata"]["name"]
                    while not await _is_served(backend, name):  # noqa: ASYNC110
                        await asyncio.sleep(POLL_SECONDS)
                    print_line(f"customresourcedefinition.apiextensions.k8s.io/{name} installed")
        except TimeoutError:
            raise CommandError(f"the cluster does not serve {name} yet; look at its API server's log") from None


async def _is_served(backend: Any, name: str) -> bool:
    answer = await backend.raw("GET", f"{PATH}/{name}")
    conditions = json.loads(answer.body).get("status", {}).get("conditions", [])
    return any(each["type"] == "Established" and each["status"] == "True" for each in conditions)
