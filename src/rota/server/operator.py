"""The controllers as a process of their own, for any API server: a Rota, or a cluster that has Rota's kinds.

With a folder, the operator also serves the part of the gateway that needs no store on a socket (`gateway_operator`).
"""

from __future__ import annotations

import asyncio
import dataclasses
import os
import signal
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from rota.api import ConfigMap, Namespace, ObjectMeta
from rota.api.cluster import PersistentVolumeClaim, Pod
from rota.api.egress import Network, Policy
from rota.client import Cache, Client
from rota.client.connection import Limits
from rota.client.credentials import Credential, Fixed
from rota.client.http import HttpBackend
from rota.control.cells.messages import REPORT_BYTES_MAX
from rota.control.leading import Linking
from rota.control.making.pods.maker import PodMaker, pod_maker
from rota.control.plane import HERE, Plane
from rota.control.schedule import Schedules
from rota.control.table import controllers
from rota.engine import CachedObjects, kinds_of
from rota.engine.clock import RealClock
from rota.engine.leadership import Leadership
from rota.registry import ApiError
from rota.registry.system import SYSTEM_NAMESPACE
from rota.server.accounts import Accounts
from rota.server.addresses import LOOPBACK, dialled, from_elsewhere
from rota.server.app import refusal
from rota.server.cluster_membership import ensure_namespace
from rota.server.controllers import MANAGER, Controllers, identity_of_process
from rota.server.gateway import streams_body
from rota.server.gateway_operator import OperatorGateway
from rota.server.home import Home
from rota.server.http_server import HttpServer
from rota.server.hub import HubAnswers
from rota.server.membership import Keeping, Membership, linking
from rota.server.sockets import authority_of, bind
from rota.server.tls import ensure as ensure_tls

ELSEWHERE_NAMESPACE = "default"
"""The default namespace of the lease on a cluster."""
LOOK_SECONDS = 0.2
"""Time between two checks of who leads."""
HUB_LEASE = "rota-hub"
CELL_LEASE = "rota-cell-{}"
PUBLISHED = "rota-hub"
"""The ConfigMap in the system namespace with the address of a hub for its cells."""
PASSED_STREAMS_MAX = 4096
"""Watches of all cells that are forwarded at once."""


class HubAddress(NamedTuple):
    """The address of a hub for its cells."""

    host: str
    port: int
    url: str
    """The URL that cells get; empty for this host and port."""


class Pods(NamedTuple):
    """Settings of an operator that makes instances real as Pods."""

    runtime_class: str = ""
    """The RuntimeClass of Pods with a sandbox; empty if the cluster has none."""
    network: Network = "host"
    """The default network of instances."""

    def opened(self, client: Client) -> AbstractAsyncContextManager[PodMaker]:
        return pod_maker(client, policy=Policy(self.network), runtime_class=self.runtime_class)

    def unopened(self, client: Client) -> PodMaker:
        """Return a maker that is not connected, from which only the kinds that its controllers read are taken."""
        return PodMaker(client, Cache(client, Pod), Cache(client, PersistentVolumeClaim))


class OperatorRole(NamedTuple):
    """The role of an operator."""

    lease: str = "rota-controllers"
    plane: Plane = HERE
    linking: Linking | None = None
    address: HubAddress | None = None
    """The listener of a hub; None if the operator is no hub."""


ALONE = OperatorRole()


def hub(address: HubAddress) -> OperatorRole:
    return OperatorRole(HUB_LEASE, Plane(None), address=address)


def cell(membership: Membership, keeping: Keeping) -> OperatorRole:
    plane = Plane(membership.cell, membership.city, places=False)
    return OperatorRole(CELL_LEASE.format(membership.cell), plane, linking(keeping))


async def operate(
    client: Client,
    *,
    lease_namespace: str | None,
    gateway: Path | None,
    say: Callable[[str], None],
    role: OperatorRole = ALONE,
    pods: Pods | None = None,
) -> None:
    """Run until SIGTERM or SIGINT. `say` is called with the leader whenever it changes.

    Without `lease_namespace` the lease is in the server's own namespace: for a Rota, its system namespace. Without
    `pods` this operator makes no instances real.
    """
    identity = identity_of_process()
    # Determined in any case, because it also decides how objects are written.
    asking = asyncio.create_task(_is_rota(client, lambda what: say(f"{identity} waits: {what}")), name="which server")
    _end_on_signals(asking)
    try:
        is_rota = await asking
    except asyncio.CancelledError:
        say("stopped")
        return
    if role is not ALONE:
        await ensure_namespace(client, SYSTEM_NAMESPACE)
    if lease_namespace is None:
        lease_namespace = SYSTEM_NAMESPACE if is_rota or role is not ALONE else ELSEWHERE_NAMESPACE
    writing = Client(client.backend, manager=MANAGER, namespace=lease_namespace)
    leadership = Leadership(writing, identity, name=role.lease, namespace=lease_namespace)
    if pods is not None and is_rota:
        raise OSError("--pods is for a cluster: this server is a Rota, which has no Pods")
    maker = pods.unopened(client) if pods is not None else None
    kinds = [*kinds_of([*controllers(maker=maker), Schedules()]), Namespace.api]
    running = Controllers(
        writing,
        CachedObjects(client, list(dict.fromkeys(kinds))),
        leadership,
        identity,
        plane=role.plane,
        linking=role.linking,
        making=pods.opened if pods is not None else None,
    )
    answering = await _answering(running, client, Home(gateway)) if gateway is not None else None
    opened: Hub | None = None
    if role.address is not None:
        assert gateway is not None and isinstance(client.backend, HttpBackend)
        opened = Hub(running, client.backend, gateway, role.address)
        say(f"cells reach this hub at {await opened.open(client)}")
    task = asyncio.create_task(running.run(), name="controllers")
    _end_on_signals(task)
    reporting = asyncio.create_task(_report_leader(running, identity, say), name="who leads")
    try:
        await task
    except asyncio.CancelledError:
        say("stopped")
    finally:
        reporting.cancel()
        await asyncio.gather(reporting, return_exceptions=True)
        if answering is not None:
            await answering.aclose()
        if opened is not None:
            await opened.close()


def _end_on_signals(task: asyncio.Task[Any]) -> None:
    loop = asyncio.get_running_loop()
    for one in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(one, task.cancel)


async def _is_rota(client: Client, say: Callable[[str], None]) -> bool:
    """Report whether the server is a Rota. Waits for its answer, because two operators with different leases would both
    lead."""
    backend, reported = client.backend, ""
    while isinstance(backend, HttpBackend):
        try:
            return "rotaVersion" in await backend.version()
        except (OSError, ApiError) as error:
            if isinstance(error, ApiError) and error.code in (403, 404):
                return False  # A Rota serves its version to every credential.
            if str(error) != reported:
                reported = str(error)
                say(reported)
            await asyncio.sleep(LOOK_SECONDS)
    return False


async def _answering(running: Controllers, client: Client, home: Home) -> AsyncExitStack:
    """Serve on the socket of a folder. Returns a stack that ends it when closed."""
    home.prepare()
    if home.store.exists():
        raise OSError(f"{home.path} is the home of a server; choose another folder for the operator")
    if await _answers(home):
        raise OSError(f"another operator answers in {home.path}; choose another folder")
    async with AsyncExitStack() as opening:
        answers = OperatorGateway(running, client, home)
        opening.callback(answers.close)
        http = HttpServer(answers, refusal, admit=answers.admit, streams_body=streams_body)
        opening.callback(home.remove_stale_socket)
        opening.push_async_callback(http.close)
        home.remove_stale_socket()
        mask = os.umask(0o177)
        try:
            await http.listen_unix(str(home.socket))
        finally:
            os.umask(mask)
        return opening.pop_all()


class Hub:
    """The listener of a hub for its cells. `close` it."""

    def __init__(self, running: Controllers, backend: HttpBackend, folder: Path, address: HubAddress) -> None:
        nobody = dataclasses.replace(backend.target, credentials=Fixed(Credential()))
        self._passing = HttpBackend(nobody, limits=Limits(streams=PASSED_STREAMS_MAX))
        # A backend of its own, so that requests of cells do not delay the controllers or their lease.
        self._asking = HttpBackend(backend.target)
        self._authority = Home(folder).ca
        self._folder = folder
        self._address = address
        answers = HubAnswers(running, Accounts(self._asking, RealClock()), self._passing, self._authority)
        self._http = HttpServer(answers, refusal, body_bytes_max=REPORT_BYTES_MAX)

    async def open(self, client: Client) -> str:
        """Listen, and publish the URL. Returns the URL."""
        host, port, reported = self._address
        sock = bind(host, port, "--listen")
        url = reported or f"https://{authority_of(host, sock)}"
        names = [*LOOPBACK, dialled(host), *from_elsewhere(host), urlsplit(url).hostname or ""]
        await self._http.listen(sock, ssl=ensure_tls(self._folder, [one for one in dict.fromkeys(names) if one]))
        await _publish(client, {"url": url, "authority": self._authority.read_text()})
        return url

    async def close(self) -> None:
        await self._http.close()
        await self._passing.close()
        await self._asking.close()


async def _publish(client: Client, data: dict[str, str]) -> None:
    wanted = ConfigMap(metadata=ObjectMeta(name=PUBLISHED, namespace=SYSTEM_NAMESPACE), data=data)
    try:
        await client.create(wanted)
    except ApiError as error:
        if error.reason != "AlreadyExists":
            raise
        await client.patch(ConfigMap, PUBLISHED, {"data": data}, namespace=SYSTEM_NAMESPACE)


async def _answers(home: Home) -> bool:
    try:
        _, writer = await asyncio.open_unix_connection(str(home.socket))
    except OSError:
        return False
    writer.close()
    return True


async def _report_leader(running: Controllers, identity: str, say: Callable[[str], None]) -> None:
    reported: tuple[str, int] = ("", 0)
    while True:
        if running.loop is not None:
            now = f"{identity} leads"
        elif running.trouble is not None:
            now = f"{identity} waits: {running.trouble}"
        elif running.leader and running.leader != identity:
            now = f"{identity} waits; {running.leader} leads"
        else:
            now = f"{identity} waits"
        if (now, running.terms) != reported:
            say(now)
            reported = (now, running.terms)
        await asyncio.sleep(LOOK_SECONDS)
