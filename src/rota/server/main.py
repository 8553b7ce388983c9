"""Run one server from start to end: the store, the registry, and the listeners."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import sys
from collections.abc import Callable, Coroutine, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, ExitStack
from pathlib import Path
from typing import Any, NamedTuple

from rota.api.egress import Policy
from rota.client import Client
from rota.control.plane import HERE, Plane
from rota.control.spawners.apis import Apis
from rota.engine import StoreObjects
from rota.engine.leadership import Leadership
from rota.registry import Registry
from rota.registry.roles import rules_of
from rota.registry.system import SYSTEM_NAMESPACE, cell_uid, namespace_uid
from rota.registry.system import establish as establish_system
from rota.runtime import descriptors, sandbox
from rota.runtime.blobs import Blobs
from rota.runtime.disk import Disk
from rota.runtime.interface import Subject
from rota.runtime.keeper import ports
from rota.runtime.keeper.client import KeeperError
from rota.runtime.local import NO_POLICY, LocalRuntime
from rota.server import tls
from rota.server.addresses import DEFAULT_HOST, DEFAULT_PORT, address_of, names_of
from rota.server.app import App, refusal
from rota.server.audit import Audit
from rota.server.auth import Tokens
from rota.server.calls import CallHandler
from rota.server.cell_tunnel import Tunnel
from rota.server.collectors import BlobCollector, MirrorCollector
from rota.server.controllers import (
    MANAGER,
    UP_LEASE_SECONDS,
    UP_RENEW_SECONDS,
    Controllers,
    Running,
    identity_of_home,
)
from rota.server.definitions import definitions, establish
from rota.server.edge import (
    DEFAULT_EDGE_PORT,
    EDGE_ANSWERS_BYTES_MAX,
    EDGE_BODIES_BYTES_MAX,
    EDGE_BODY_BYTES_MAX,
    Edge,
)
from rota.server.edge import refusal as edge_refusal
from rota.server.gateway import Gateway, streams_body
from rota.server.gateway_server import server_gateway
from rota.server.home import Home
from rota.server.http_server import HttpServer
from rota.server.loop_budget import LoopBudget
from rota.server.membership import Member, linking
from rota.server.memory import Memory
from rota.server.shedding import Shedding
from rota.server.signed_tokens import SignedTokens
from rota.server.sockets import authority_of, bind, twins
from rota.server.stopping import HAND_OVER
from rota.server.tables import Tables
from rota.store import SqliteStore, read_key

log = logging.getLogger(__name__)

SWITCH_SECONDS = 0.0005
THREADS_MAX = 32
"""Threads for work that waits for a disk or another process, whatever the number of processors."""
COME_UP_SECONDS_MAX = 2.0
"""Time for a server that is stopped during its start to become ready."""
ANSWER_SECONDS_MAX = 5.0
"""Time that a stopping server waits for a keeper that does not answer."""
COLLECT_OBJECTS = 50_000
"""The threshold of the garbage collector: objects created minus objects freed. One request creates and frees thousands.
"""


class Ready(NamedTuple):
    """The addresses of a running server."""

    url: str
    kubeconfig: Path
    socket: Path
    edge: str
    """The URL of webhooks."""


async def run(
    home_path: Path,
    *,
    host: str = DEFAULT_HOST,
    port: int = DEFAULT_PORT,
    edge_port: int | None = None,
    ports_before: tuple[int, int] = (0, 0),
    allowed_apis: Iterable[str] = (),
    policy: Policy = NO_POLICY,
    with_controllers: bool = True,
    key_file: Path | None = None,
    audit_required: bool = False,
    edge_hosts: Iterable[str] = (),
    no_cell: bool = False,
    on_ready: Callable[[Ready], None] = lambda ready: None,
    stop: asyncio.Event | None = None,
) -> None:
    """Serve until SIGTERM, SIGINT or `stop`, and then end the instances.

    After `HAND_OVER` the instances go on, and the next server of this home adopts them. Port 0 takes a free port, and
    then so does the edge unless its port is given.

    `ports_before`: preferred ports for the API and the edge where any free one will do. `key_file`: the key that
    encrypts Secrets, or None. `edge_hosts`: further names of the edge, such as that of a proxy. `audit_required`:
    refuse requests that cannot be recorded. `no_cell`: run no instances, as a hub for cells elsewhere.
    """
    stop = stop or asyncio.Event()
    handing_over = False

    def hand_over() -> None:
        nonlocal handing_over
        handing_over = True
        stop.set()

    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(THREADS_MAX, "rota"))
    asyncio.get_running_loop().add_signal_handler(HAND_OVER, hand_over)
    insisted = asyncio.Event()

    def asked_to_stop() -> None:
        if stop.is_set():
            insisted.set()
        stop.set()

    for signal_ in (signal.SIGTERM, signal.SIGINT):
        # Installed first, so that a server that is stopped during its start still ends its instances.
        asyncio.get_running_loop().add_signal_handler(signal_, asked_to_stop)
    home = Home(home_path)
    home.prepare()
    tokens = Tokens(
        home.tokens,
        rules=lambda namespace, role: rules_of(store, namespace, role),
        cells=lambda namespace: cell_uid(store, namespace),
        namespaces=lambda namespace: namespace_uid(store, namespace),
    )
    apis = Apis(allowed_apis)
    # Held sockets are identified by the address as the kernel writes it.
    address = address_of(host)
    with ExitStack() as bound:
        # The keeper has held these sockets for the server, so that no instance could take them.
        held = [bound.enter_context(one) for one in ports.held_listeners(home.path, address)]
        listening = bound.enter_context(bind(address, port, "--port", before=ports_before[0], held=held))
        edge_wanted = (DEFAULT_EDGE_PORT if port else 0) if edge_port is None else edge_port
        edge_before = ports_before[1]
        edge_listening = bound.enter_context(bind(address, edge_wanted, "--edge-port", before=edge_before, held=held))
        also = [bound.enter_context(one) for one in twins(listening, "--port", held=held)]
        edge_also = [bound.enter_context(one) for one in twins(edge_listening, "--edge-port", held=held)]
        disk = Disk(home.path)
        sealer = read_key(key_file) if key_file is not None else None
        store = SqliteStore(home.store, relieve=disk.relieve, sealer=sealer)
        bound.pop_all()
        for unused in held:
            unused.close()
    listeners = [listening, edge_listening, *also, *edge_also]
    registry = Registry(store, policy=policy)
    audit = Audit(home.audit, required=audit_required)
    claims = SignedTokens(home.worker_key, "claim")
    tables = Tables()
    shedding = Shedding(disk, store)
    controllers: Controllers | None = None
    edge_url = f"http://{authority_of(host, edge_listening)}"
    gateway = server_gateway(
        registry,
        tokens,
        audit,
        home.path,
        home.ca,
        claims,
        tables,
        running=lambda: controllers,
        shedding=shedding,
        edge=edge_url,
        connections=lambda: len(http.connections),
        revoked=lambda token_id: app.end_watches(token_id),
    )
    hosts = names_of(host)
    room = descriptors.shared_out(descriptors.raise_limit())
    memory, loop_budget = Memory(), LoopBudget()
    http = HttpServer(
        lambda request: app(request),
        refusal,
        connections_max=room.remote,
        local_connections_max=room.local,
        handshakes_max=room.handshakes,
        memory=memory,
        admit=lambda request: app.admit(request),
        payer=lambda request: app.payer(request),
        streams_body=streams_body,
    )
    workers = SignedTokens(home.worker_key, "worker")
    signed = (workers, claims)
    defined = definitions(store)
    app = App(
        registry,
        defined,
        tokens,
        audit,
        gateway,
        hosts=hosts,
        server_uid=os.getuid(),
        authority=home.ca,
        signed=signed,
        shedding=shedding,
        connections=room,
        memory=memory,
        loop_budget=loop_budget,
    )
    calling = _calling(lambda: controllers, tokens)
    edge = Edge(
        lambda: controllers.spawning if controllers is not None else None,
        audit,
        calling,
        room.edge,
        hosts | {name.lower() for name in edge_hosts},
        shedding,
        loop_budget,
    )
    edge_http = HttpServer(
        edge,
        edge_refusal,
        connections_max=room.edge,
        body_bytes_max=EDGE_BODY_BYTES_MAX,
        memory=Memory(EDGE_BODIES_BYTES_MAX, EDGE_ANSWERS_BYTES_MAX, bodies_reserved=0, answers_reserved=0),
        admit=edge.admit,
    )
    tables.add(gateway, http, edge_http)
    controlling: asyncio.Task[None] | None = None
    looking = asyncio.create_task(disk.run(), name="disk")
    runtime: LocalRuntime | None = None
    running = AsyncExitStack()
    asked_to_end = False

    async def come_up() -> None:
        nonlocal controlling, controllers, runtime
        await registry.start()
        await establish_system(registry)
        await establish(defined, store)
        await running.enter_async_context(BlobCollector(Blobs(home.path), StoreObjects(registry)))
        if with_controllers:
            # Checked in a thread, so that a request to stop need not wait for it.
            await asyncio.to_thread(sandbox.available)
            # Assigned before it is entered, so that a stop meanwhile ends adopted instances.
            runtime = LocalRuntime(
                home.path, introduce=_introduction(home, workers), disk=disk, policy=policy, listeners=listeners
            )
            await running.enter_async_context(runtime)
            collecting = MirrorCollector(home.path, StoreObjects(registry), lambda: disk.level != "ok")
            await running.enter_async_context(collecting)
            controllers = _controllers(
                registry, home.path, runtime, apis, gateway, audit, edge_url, app.end_watches, no_cell=no_cell
            )
            controlling = asyncio.create_task(controllers.run(), name="controllers")
            controlling.add_done_callback(lambda _: stop.set())
        context = tls.ensure(home.path, sorted(hosts))
        url = f"https://{authority_of(host, listening)}"
        await home.write_kubeconfig(tokens, url)
        home.remove_stale_socket()
        for one in (listening, *also):
            await http.listen(one, ssl=context)
        for one in (edge_listening, *edge_also):
            await edge_http.listen(one)
        mask = os.umask(0o177)
        try:
            await http.listen_unix(str(home.socket))
        finally:
            os.umask(mask)
        app.ready = True
        on_ready(Ready(url, home.kubeconfig, home.socket, edge_url))

    try:
        if await _unless(stop, come_up()):
            await stop.wait()
        if controlling is not None and controlling.done():
            controlling.result()
        asked_to_end = not handing_over
    finally:
        app.ready = False
        looking.cancel()
        if (answering := calling()) is not None:
            await answering.finish()
        if controlling is not None:
            controlling.cancel()
            await asyncio.gather(controlling, return_exceptions=True)
        if runtime is not None and asked_to_end:
            # After a crash the next server adopts the instances instead.
            await _shut_down(runtime, insisted)
        await running.aclose()
        await asyncio.gather(edge_http.close(), http.close())
        for unused in listeners:
            unused.close()
        home.remove_stale_socket()
        await registry.stop()
        await defined.store.close()
        await store.close()
        audit.close()
        await asyncio.gather(looking, return_exceptions=True)


async def _unless(stop: asyncio.Event, coming_up: Coroutine[Any, Any, None]) -> bool:
    """Run the start until it is done or a stop is requested. Returns whether it is done.

    A start that is stopped may go on for a moment, so that the server ends in good order. If it hangs, it is cancelled.
    """
    starting = asyncio.create_task(coming_up, name="starting")
    stopping = asyncio.create_task(stop.wait(), name="stopping")
    try:
        await asyncio.wait((starting, stopping), return_when=asyncio.FIRST_COMPLETED)
        if not starting.done():
            await asyncio.wait((starting,), timeout=COME_UP_SECONDS_MAX)
        if starting.done():
            starting.result()
            return True
        log.warning(
            "asked to stop, and still not ready after %g s: what is being started is given up", COME_UP_SECONDS_MAX
        )
        return False
    finally:
        for task in (starting, stopping):
            task.cancel()
        await asyncio.wait((starting, stopping), timeout=COME_UP_SECONDS_MAX)


async def _shut_down(runtime: LocalRuntime, insisted: asyncio.Event) -> None:
    """End the instances, unless the keeper does not answer or a second signal arrives. The next server ends the
    rest."""
    ending = asyncio.create_task(runtime.shutdown(), name="ending what runs")
    insisting = asyncio.create_task(insisted.wait(), name="insisting")
    why = ""
    try:
        while not ending.done() and not why:
            await asyncio.wait((ending, insisting), timeout=ANSWER_SECONDS_MAX, return_when=asyncio.FIRST_COMPLETED)
            if insisting.done():
                why = "asked twice to stop"
            elif not ending.done() and not await runtime.answers(ANSWER_SECONDS_MAX):
                why = "the keeper does not answer"
        if ending.done():
            ending.result()
            return
    except KeeperError as error:
        why = str(error)
    finally:
        for task in (ending, insisting):
            task.cancel()
        await asyncio.wait((ending, insisting), timeout=ANSWER_SECONDS_MAX)
    log.warning("%s: what still runs is left to the next server", why)


def _introduction(home: Home, workers: SignedTokens) -> Callable[[Subject], Mapping[str, str]]:
    """Return the environment of runners: the gateway's socket, their name, and their token."""

    def introduce(subject: Subject) -> Mapping[str, str]:
        instance = f"{subject.namespace}/{subject.name}"
        return {"ROTA_GATEWAY": str(home.socket), "ROTA_INSTANCE": instance, "ROTA_TOKEN": workers.of(subject)}

    return introduce


def _controllers(
    registry: Registry,
    home: Path,
    runtime: LocalRuntime,
    apis: Apis,
    gateway: Gateway,
    audit: Audit,
    edge: str,
    claim_ended: Callable[[str], None],
    *,
    no_cell: bool,
) -> Controllers:
    member = Member(home)
    membership = member.read()
    if membership is not None:
        plane = Plane(membership.cell, membership.city, places=False)
        link = linking(member, lambda about, hub, objects: Tunnel(about, hub.target, objects, gateway.reached, audit))
    else:
        plane, link = Plane(None) if no_cell else HERE, None
    identity = identity_of_home(home)
    client = Client.local(registry, manager=MANAGER)
    leadership = Leadership(
        client,
        identity,
        namespace=SYSTEM_NAMESPACE,
        lease_seconds=UP_LEASE_SECONDS,
        renew_seconds=UP_RENEW_SECONDS,
    )
    return Controllers(
        client,
        StoreObjects(registry),
        leadership,
        identity,
        runtime,
        apis,
        home,
        plane,
        link,
        edge,
        claim_ended,
    )


def _calling(running: Running, tokens: Tokens) -> Callable[[], CallHandler | None]:
    """Return a function that returns the CallHandler, or None while this process serves no functions."""
    made: list[CallHandler] = []

    def calling() -> CallHandler | None:
        controllers = running()
        serving = controllers.serving if controllers is not None else None
        if serving is None or not serving.calls.serves:
            return None
        if not made:
            made.append(CallHandler(serving, tokens))
        return made[0]

    return calling


def serve(
    home: Path,
    *,
    host: str,
    port: int,
    edge_port: int | None = None,
    ports_before: tuple[int, int] = (0, 0),
    allowed_apis: Iterable[str] = (),
    policy: Policy = NO_POLICY,
    with_controllers: bool = True,
    key_file: Path | None = None,
    audit_required: bool = False,
    edge_hosts: Iterable[str] = (),
    no_cell: bool = False,
    on_ready: Callable[[Ready], None],
) -> None:
    """Call `run` on the fastest available event loop."""

    def ready(where: Ready) -> None:
        # Exclude the present objects from garbage collection, because they stay.
        gc.freeze()
        on_ready(where)

    on_fastest_loop(
        run(
            home,
            host=host,
            port=port,
            edge_port=edge_port,
            ports_before=ports_before,
            allowed_apis=allowed_apis,
            policy=policy,
            with_controllers=with_controllers,
            key_file=key_file,
            audit_required=audit_required,
            edge_hosts=edge_hosts,
            no_cell=no_cell,
            on_ready=ready,
        )
    )


def on_fastest_loop(main: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine on the fastest available event loop."""
    # The thread that commits waits for the interpreter lock, by default for too long.
    sys.setswitchinterval(SWITCH_SECONDS)
    gc.set_threshold(COLLECT_OBJECTS)
    try:
        import uvloop
    except ImportError:
        asyncio.run(main)
    else:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(main)
