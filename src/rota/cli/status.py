"""`rota status`."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from rota.cli.command import command
from rota.cli.output import note, print_line, printable, style_of
from rota.cli.server_options import check_local, network_policy, reach_of, warn_of_no_sandbox, way_of
from rota.cli.session import CommandError, Session, bad_usage
from rota.cli.typed_commands import as_typed

if TYPE_CHECKING:
    from rota.api import Kind
    from rota.client import Client
    from rota.server.background_state import Found, State

RUNNING, NOT_RUNNING = 0, 3
"""Exit codes, as those of systemctl."""
ANSWER_SECONDS_MAX = 5.0
COUNTED_MAX = 10_000
"""Objects of a kind that are read to count them by phase. Of more, only the number is shown."""
PAGE_ITEMS = 500
WIDTH = 12
GIB = 1 << 30
FORMS = ("", "json")


class Counted(NamedTuple):
    """The number of objects of a kind, and of each phase unless there are too many to read."""

    total: int
    phases: dict[str, int]

    def __str__(self) -> str:
        by_phase = ", ".join(f"{count} {phase}" for phase, count in self.phases.items())
        return f"{self.total} ({by_phase})" if by_phase else str(self.total or "none")


@command
async def status(
    session: Session,
    output: Annotated[str, typer.Option("--output", "-o", metavar="FORMAT", help="Choose the format: json.")] = "",
) -> int:
    """Show whether a server runs in this home, since when, where, and with how much work. Exits with 0 if so, else
    3."""
    check_local(session)
    if output not in FORMS:
        raise bad_usage(f"-o {output}: there is json")
    from rota.server.background_state import find
    from rota.server.home import Home

    path = session.settings.home_path
    found = find(Home(path))
    if output:
        return await _print_json(path, found)
    if found.condition == "running" and found.state is not None:
        await _print_running(path, found, found.state)
        return RUNNING
    if found.condition == "starting":
        _print_row("server", ("starting", style_of("Pending")), f", process {found.pid}; it is not ready yet")
    else:
        await _print_stopped(path, found)
    _print_row("home", str(path))
    return NOT_RUNNING


async def _print_running(path: Path, found: Found, state: State) -> None:
    from rota.server.background_log import log_of

    began = datetime.fromtimestamp(state.started, UTC)
    since = f", process {found.pid}" if found.pid else ", where its process cannot be seen from here"
    _print_row(
        "server",
        ("running", style_of("Running")),
        f" for {_age(state.started)}, since {began:%Y-%m-%d %H:%M:%S} UTC{since}",
    )
    _print_row("version", state.version)
    _print_row("address", f"{state.url}; functions and webhooks at {state.edge}")
    if reach := reach_of(state.options.host):
        _print_row("reach", f"it listens {reach}")
    _print_row("home", str(path))
    _print_row("kubeconfig", str(path / "kubeconfig"))
    _print_row("log", str(log_of(path)))
    _print_row("runs", way_of(state))
    isolation = _isolation(state)
    _print_row("isolation", isolation if isolation.startswith("sandbox") else (isolation, style_of("Failed")))
    _print_row("network", network_policy(state.options))
    if disk := await disk_of(path):
        short = disk["level"] != "ok"
        free = f"{disk['freeBytes'] / GIB:.1f} GiB free of {disk['totalBytes'] / GIB:.1f} GiB"
        text = f"{disk['level']}: {disk['message']}; tenants' writes are refused until there is space"
        _print_row("disk", (text, style_of("Failed")) if short else free)
    if not state.image and not isolation.startswith("sandbox"):
        warn_of_no_sandbox(isolation.removeprefix("none: "))
    work = await work_of(path)
    if isinstance(work, str):
        _print_row("work", f"not known: {work}")
    else:
        for kind, counted in work.items():
            _print_row(kind, str(counted))


async def _print_json(path: Path, found: Found) -> int:

    state = found.state
    is_running = found.condition == "running" and state is not None
    isolation = _isolation(state) if is_running and state is not None else ""
    disk = await disk_of(path) if is_running else {}
    print(as_json(path, found, isolation, await work_of(path) if is_running else await _going_on(path), disk))
    return RUNNING if is_running else NOT_RUNNING


def _isolation(state: State) -> str:
    if state.image:
        why_not = state.no_sandbox
        where = "the container keeps all that runs in it from the host, but not from each other"
        return f"none within the container: {where} ({why_not})" if why_not else "sandbox, within the container"
    from rota.runtime import sandbox

    ok, why_not = sandbox.available()
    return "sandbox" if ok else f"none: {why_not}"


async def work_of(path: Path) -> dict[str, Counted] | str:
    """Return the instances and tasks by kind, or the reason why they are unknown."""
    from rota.api import Instance, Task
    from rota.client import Client, ConnectionFailed
    from rota.registry import ApiError

    client = Client.connect(home=path)
    try:
        async with asyncio.timeout(ANSWER_SECONDS_MAX):
            return {kind.plural: await _counted(client, kind) for kind in (Instance.api, Task.api)}
    except (ConnectionFailed, ApiError, TimeoutError) as error:
        return f"the server does not answer ({error or 'in time'})"
    finally:
        await client.close()


async def disk_of(path: Path) -> dict[str, Any]:
    """Return the state of the server's disk; empty if it does not report it."""
    from rota.cli.gateway import call
    from rota.client import Client, ConnectionFailed
    from rota.registry import ApiError

    client = Client.connect(home=path)
    try:
        async with asyncio.timeout(ANSWER_SECONDS_MAX):
            return (await call(client, "GET", "/v1/status")).get("disk") or {}
    except (ConnectionFailed, ApiError, CommandError, TimeoutError):
        return {}
    finally:
        await client.close()


async def _counted(client: Client, kind: Kind) -> Counted:
    from rota.client import ALL_NAMESPACES

    phases: Counter[str] = Counter()
    continue_ = ""
    while True:
        page = await client.list(kind, namespace=ALL_NAMESPACES, limit=PAGE_ITEMS, continue_=continue_)
        phases.update((one.get("status") or {}).get("phase") or "Pending" for one in page.items)
        if page.remaining and phases.total() + page.remaining > COUNTED_MAX:
            return Counted(phases.total() + page.remaining, {})
        continue_ = page.continue_
        if not continue_:
            break
    return Counted(phases.total(), dict(sorted(phases.items())))


async def _print_stopped(path: Path, found: Found) -> None:
    from rota.server.background_log import end_of, log_of

    if found.condition == "stopped" or found.state is None:
        _print_row("server", ("not running", style_of("Failed")), as_typed("; `rota start` starts one"))
    else:
        began = datetime.fromtimestamp(found.state.started, UTC)
        crashed = "; it was killed, or crashed, and did not end in good order"
        _print_row("server", ("not running", style_of("Failed")), crashed)
        _print_row("last", f"version {found.state.version}, {way_of(found.state)}, since {began:%Y-%m-%d %H:%M:%S} UTC")
    going_on = await _going_on(path)
    if going_on:
        what = f"{going_on} process{'es' if going_on != 1 else ''} of its instances go on"
        _print_row("work", as_typed(f"{what}; `rota start` takes them up, `rota stop` ends them"))
    if found.condition == "crashed" and (end := end_of(log_of(path))):
        note(f"the end of {log_of(path)}:")
        for text in end:
            note(f"  {printable(text.decode(errors='replace'))}")


async def _going_on(path: Path) -> int:
    from rota.runtime.keeper.client import Keeper, KeeperError

    try:
        async with asyncio.timeout(ANSWER_SECONDS_MAX), Keeper.existing(path) as keeper:
            return sum(record.is_running for record in await keeper.list())
    except (KeeperError, TimeoutError):
        return 0


def _age(since: float) -> str:
    from rota.api.table import duration

    return duration(max(0.0, time.time() - since))


def _print_row(what: str, *parts: tuple[str, str] | str) -> None:
    print_line((f"{what:<{WIDTH}}", "bold"), *parts)


def as_json(
    path: Path, found: Found, isolation: str, work: dict[str, Counted] | str | int, disk: dict[str, Any]
) -> str:
    """Encode the state of a home's server.

    `work`: the objects of a running server, or the reason why they are unknown; without a server, the number of
    processes that go on. `disk`: the server's report about its disk.
    """
    from rota.server.background_log import log_of

    said: dict[str, Any] = {"server": found.condition, "home": str(path), "log": str(log_of(path))}
    if found.pid:
        said["pid"] = found.pid
    if found.state is not None:
        said |= _of_server(found.state)
    if isinstance(work, int):
        said["processes"] = work
    else:
        said |= {"isolation": isolation, "kubeconfig": str(path / "kubeconfig")}
    if disk:
        said["disk"] = disk
    if isinstance(work, str):
        said["workUnknown"] = work
    elif isinstance(work, dict):
        said["work"] = {kind: one._asdict() for kind, one in work.items()}
    return json.dumps(said, indent=2, ensure_ascii=False)


def _of_server(state: State) -> dict[str, Any]:
    started = datetime.fromtimestamp(state.started, UTC)
    return {
        "version": state.version,
        "started": f"{started:%Y-%m-%dT%H:%M:%SZ}",
        "url": state.url,
        "edge": state.edge,
        "host": state.options.host,
        "image": state.image,
        "network": state.options.network,
        "egress": list(state.options.egress),
    }
