"""To take all of what there are few of: commands, uploads, builds."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from rota.api import Kind
from rota.engine.objects import Objects
from rota.registry import ApiError
from rota.runtime import sandbox
from rota.runtime.blobs import Blobs, digest_of
from rota.runtime.code import packages as packages_module
from rota.runtime.code.packages import Packages
from rota.runtime.interface import Subject
from rota.runtime.keeper import protocol
from rota.runtime.keeper.child import Exec
from rota.runtime.keeper.children import Children
from rota.runtime.keeper.fields import RequestRefused
from rota.runtime.space import Space, low_bytes
from rota.server.audit import Audit
from rota.server.auth import User
from rota.server.blobs import PUTS_AT_ONCE_MAX, BlobRequests
from rota.server.files import AT_ONCE_MAX, FileRequests
from rota.server.http import Request, Response
from rota.server.http_connection import STALLED_SECONDS_MAX
from rota.server.request_body import BYTES_PER_SECOND_MIN, Body
from tests.attacks.conftest import TENANT, Deployer
from tests.until import until_async, until_so

SOON_SECONDS = 10.0
ATTACKER = User("attacker", "deployer", TENANT, "attacker")
OTHER = User("other", "deployer", "other", "other")
ADMIN = User("admin", "admin", "", "admin")


@pytest.fixture
def audit(tmp_path: Path) -> Iterator[Audit]:
    trail = Audit(tmp_path / "audit.log")
    yield trail
    trail.close()


class Runs:
    """The runs of an instance, as the keeper has them."""

    def __init__(self) -> None:
        self.execs: set[Exec] = set()


class Commands(Children):
    """The commands of a keeper, none of which is real."""

    def __init__(self) -> None:
        self.live = cast(Any, {})
        self._by_pid = {}

    def run(self, key: str) -> bool:
        """Run one more, if there is room."""
        try:
            self._check_exec_share(key)
        except RequestRefused:
            return False
        child = cast(Any, self.live.setdefault(key, cast(Any, Runs())))
        one = Exec(str(len(self._by_pid)), child, True, lambda said: None)
        child.execs.add(one)
        self._by_pid[len(self._by_pid)] = one
        return True

    def run_all(self, namespace: str) -> int:
        """Run as many as there is room for, in several instances."""
        count = 0
        while self.run(f"{namespace}/it-{count % 10}/uid/main"):
            count += 1
        return count


def test_to_run_all_commands_that_can_be() -> None:
    commands = Commands()
    most = commands.run_all(TENANT)
    assert most == protocol.EXECS_MAX // 2
    assert commands.run_all("other") >= protocol.EXECS_MAX // 4
    # Many that act together leave some for who comes next.
    for number in range(8):
        commands.run_all(f"many-{number}")
    assert len(commands._by_pid) <= protocol.EXECS_MAX


class Slow(Blobs):
    """Takes a blob for as long as somebody sends it."""

    async def put(self, digest: str, pieces: AsyncIterator[bytes], share: int | None = None) -> bool:
        await asyncio.Event().wait()
        return True


class NoObjects:
    """A store in which nothing refers to anything."""

    def list(self, kind: Kind, namespace: str = "") -> list[Any]:
        return []


OBJECTS = cast(Objects, NoObjects())


def upload() -> Request:
    request = Request("PUT", b"/v1/blobs/x", {}, b"", None)
    request.pieces = cast(Any, iter(()))
    return request


async def put_all(blobs: BlobRequests, user: User, tasks: list[asyncio.Task[Any]]) -> int:
    """Begin uploads until one is refused: how many there are then."""
    for count in range(PUTS_AT_ONCE_MAX + 1):
        task = asyncio.create_task(blobs._kept(OBJECTS, upload(), user, "sha256:x"))
        await asyncio.sleep(0)
        if task.done():
            with pytest.raises(ApiError) as refused:
                task.result()
            assert refused.value.code == 429
            return count
        tasks.append(task)
    raise AssertionError("there is no end to it")


async def test_to_take_all_uploads_of_blobs(tmp_path: Path, audit: Audit) -> None:
    blobs = BlobRequests(Slow(tmp_path), audit)
    tasks: list[asyncio.Task[Any]] = []
    assert await put_all(blobs, ATTACKER, tasks) <= PUTS_AT_ONCE_MAX // 2
    assert await put_all(blobs, OTHER, tasks) >= 2
    assert await put_all(blobs, ADMIN, tasks) >= 1
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert blobs._puts.used == 0


MIB = 1 << 20


async def _fill(blobs: BlobRequests, user: User, at: int, *, is_said: bool) -> int:
    """Put blobs until one is refused: how many bytes there are then."""
    total = 0
    for number in range(64):
        content = f"{user.name} {at} {number}".encode().ljust(MIB, b"x")

        async def pieces(content: bytes = content) -> AsyncIterator[bytes]:
            yield content

        request = Request("PUT", b"/v1/blobs/x", {"content-length": str(MIB)} if is_said else {}, b"", None)
        request.pieces = cast(Any, pieces())
        answer = await asyncio.gather(blobs._kept(OBJECTS, request, user, digest_of(content)), return_exceptions=True)
        if isinstance(answer[0], ApiError) and answer[0].code == 507:
            assert "you may have" in answer[0].message
            return total
        assert isinstance(answer[0], Response)
        total += MIB
    raise AssertionError("there is no end to it")


@pytest.mark.parametrize("is_said", [True, False])
async def test_to_fill_the_room_for_blobs(tmp_path: Path, audit: Audit, is_said: bool) -> None:
    blobs = BlobRequests(Blobs(tmp_path, blob_bytes_max=MIB, blobs_bytes_max=16 * MIB), audit)
    assert await _fill(blobs, ATTACKER, 0, is_said=is_said) == 8 * MIB
    # Another token of the same tenant has no share of its own.
    again = User("again", "deployer", TENANT, "again")
    assert await _fill(blobs, again, 1, is_said=is_said) == 0
    assert await _fill(blobs, OTHER, 2, is_said=is_said) == 4 * MIB
    assert not blobs._coming


async def test_to_fill_the_disk_with_blobs(tmp_path: Path, audit: Audit, monkeypatch: pytest.MonkeyPatch) -> None:
    def space(path: Path) -> Space:
        used = sum(one.stat().st_size for one in path.iterdir())
        return Space(1000 * MIB, low_bytes(1000 * MIB) + 10 * MIB - used)

    monkeypatch.setattr("rota.runtime.blobs.space_of", space)
    blobs = BlobRequests(Blobs(tmp_path, blob_bytes_max=MIB), audit)
    assert await _fill(blobs, ATTACKER, 0, is_said=True) == 5 * MIB


class Slots(Children):
    """The containers of a keeper, none of which is real."""

    def __init__(self, most: int) -> None:
        self.live = cast(Any, {})
        self._children_max = most

    def run_all(self, namespace: str) -> int:
        """Run as many as there is room for."""
        for count in range(protocol.CHILDREN_MAX):
            key = f"{namespace}/it-{count}/uid/main"
            try:
                self._check_child_share(key)
            except RequestRefused:
                return count
            self.live[key] = cast(Any, None)
        raise AssertionError("there is no end to it")


def test_to_run_all_containers_that_can_be() -> None:
    slots = Slots(256)
    assert slots.run_all(TENANT) == 128
    assert slots.run_all("other") == 64
    assert slots.run_all("third") >= protocol.CHILDREN_LEAST


def test_to_take_all_requests_for_files(audit: Audit) -> None:
    files = FileRequests(audit)
    entered: list[Callable[[], None]] = []
    with pytest.raises(ApiError) as refused:
        entered.extend(files._enter(Subject(TENANT, f"it-{i // 4}", "uid"), ATTACKER) for i in range(AT_ONCE_MAX))
    assert refused.value.code == 429
    assert 0 < files._shares.used <= AT_ONCE_MAX // 2
    mine = files._enter(Subject("other", "it", "uid"), OTHER)
    for leave in (*entered, mine):
        leave()
    assert files._shares.used == 0 and not files._under_way


async def test_to_have_all_builds_wait_for_ones_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packages, running = Packages(tmp_path), cast(list[str], [])
    go_on = asyncio.Event()

    async def build(self: Packages, folder: Path, name: str, requirements: list[str]) -> None:
        running.append(requirements[0])
        await go_on.wait()

    monkeypatch.setattr(Packages, "_run_pip", build)
    monkeypatch.setattr(sandbox, "available", lambda: sandbox.Availability(True, ""))
    count = 3 * packages_module.AT_ONCE_MAX
    asked = [asyncio.create_task(packages.install([f"evil{i}"], tenant=TENANT)) for i in range(count)]
    asked.append(asyncio.create_task(packages.install(["good"], tenant="other")))
    await until_so(lambda: running, lambda builds: "good" in builds, "a build of another tenant")
    assert len(running) <= packages_module.AT_ONCE_OF_ONE_MAX + 1
    go_on.set()
    async with asyncio.timeout(SOON_SECONDS):
        await asyncio.gather(*asked, return_exceptions=True)
    assert len(running) == count + 1
    await packages.close()


async def test_to_have_a_list_of_packages_wait_behind_ones_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packages, running = Packages(tmp_path), cast(list[str], [])
    go_on = asyncio.Event()

    async def build(self: Packages, folder: Path, name: str, requirements: list[str]) -> None:
        running.append(requirements[0])
        if requirements[0] != "popular":
            await go_on.wait()

    monkeypatch.setattr(Packages, "_run_pip", build)
    monkeypatch.setattr(sandbox, "available", lambda: sandbox.Availability(True, ""))
    # The attacker asks for it first, and has it wait behind others.
    lists = (["slow"], ["slower"], ["popular"])
    evil = [asyncio.create_task(packages.install(one, tenant=TENANT)) for one in lists]
    async with asyncio.timeout(SOON_SECONDS):
        await until_async(lambda: running, "no build has begun")
        await packages.install(["popular"], tenant="other")
        # It is there for all, and is built once.
        await evil[-1]
        assert running == ["slow", "popular"] and not evil[0].done()
        go_on.set()
        await asyncio.gather(*evil)
    assert running == ["slow", "popular", "slower"]
    await until_so(lambda: packages._installing, lambda installing: not installing, "no builds", poll_seconds=0)
    assert not packages._there
    await packages.close()


class Clock:
    """A loop whose time is what one says."""

    def __init__(self) -> None:
        self.now = 1000.0
        self._real = asyncio.get_running_loop()

    def time(self) -> float:
        return self.now

    def create_future(self) -> asyncio.Future[None]:
        return self._real.create_future()


@pytest.mark.parametrize(("pause", "size", "is_late"), [(20, 1, True), (20, 25 * BYTES_PER_SECOND_MIN, False)])
async def test_to_keep_an_upload_by_sending_a_byte_now_and_then(pause: int, size: int, is_late: bool) -> None:
    body, clock = Body(cast(Any, None), lambda: None), Clock()
    body._loop = cast(Any, clock)
    late = False
    for _ in range(10):
        taking = asyncio.ensure_future(anext(body))
        await asyncio.sleep(0)
        clock.now += pause
        late = late or body.late_seconds(clock.now) > STALLED_SECONDS_MAX
        for _ in range(-(-size // 65536)):
            body.feed(b"x" * min(size, 65536))
            await asyncio.sleep(0)
        await taking
    assert late is is_late
    # Who sends nothing because nobody takes it is not late.
    assert body.late_seconds(clock.now + 3600) == 0


@pytest.mark.parametrize("reporter", ["rota", "Rota", " rota", "rota-controllers", "rota.dev/engine"])
@pytest.mark.parametrize("field", ["source", "reportingComponent", "newer"])
async def test_to_speak_in_the_name_of_the_server(attacker: Deployer, reporter: str, field: str) -> None:
    events = f"/api/v1/namespaces/{TENANT}/events"
    about = {"kind": "WorkerPool", "name": "p", "namespace": TENANT}
    event: dict[str, Any] = {"metadata": {"name": "e"}, "involvedObject": about, "reason": "Ready", "message": "m"}
    if field == "source":
        event["source"] = {"component": reporter}
    elif field == "reportingComponent":
        event["reportingComponent"] = reporter
    else:
        events = f"/apis/events.k8s.io/v1/namespaces/{TENANT}/events"
        event = {"metadata": {"name": "e"}, "regarding": about, "reason": "Ready", "note": "m", "type": "Normal"}
        event |= {"eventTime": "2026-01-01T00:00:00.000000Z", "action": "Look", "reportingInstance": "me"}
        event["reportingController"] = reporter
    refused = await attacker.ask("POST", events, event)
    assert refused.status in (403, 422) and (await attacker.ask("GET", f"{events}/e")).status == 404
    # Nor is what the server said changed by anybody else.
    if reporter == "rota" and field == "source":
        assert (await attacker.server.ask("POST", events, event)).status == 201
        merge = {"Content-Type": "application/merge-patch+json"}
        changed = await attacker.ask("PATCH", f"{events}/e", {"message": "all is well"}, headers=merge)
        assert changed.status == 403
        own = {**event, "metadata": {"name": "own"}, "source": {"component": "rotary"}}
        assert (await attacker.ask("POST", events, own)).status == 201
