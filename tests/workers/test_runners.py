"""The gateway's end of the runners' streams."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from rota.client.upgrading import connect_unix
from rota.client.websocket import WebSocket
from rota.runtime import runners as module
from rota.runtime.interface import Subject
from rota.runtime.runner.jobs import Job, Outcome
from rota.runtime.runner.messages import (
    PROTOCOL,
    Acknowledge,
    Assign,
    Began,
    Ended,
    Hold,
    Jobs,
    Phase,
    Report,
    Returned,
    ToRunner,
    encode,
    to_runner,
)
from rota.runtime.runners import BAD_MESSAGE, REPLACED, RETURN_SECONDS_MAX, TOO_SLOW, Runners
from rota.server.app import refusal
from rota.server.http_server import HttpServer
from rota.server.upgrade import Upgrade
from tests.workers.running import end_of

ONE, OTHER = Subject("default", "w-0", "uid"), Subject("default", "w-1", "uid")


class Hub:
    """All runners, and what is heard of them."""

    def __init__(self, folder: Path) -> None:
        self.now = 100.0
        self.runners = Runners(lambda: self.now)
        self.heard: list[Subject] = []
        self._news = asyncio.Event()
        self._socket = str(folder / "socket")
        self._http = HttpServer(
            lambda request: Upgrade(lambda stream: self.runners.serve(Subject(*request.path[1:].split("/")), stream)),
            refusal,
        )
        self.runners.listen(self._hear)

    def _hear(self, subject: Subject) -> None:
        self.heard.append(subject)
        self._news.set()

    async def connect(self, subject: Subject = ONE) -> WebSocket:
        return await connect_unix(self._socket, "/" + "/".join(subject))

    async def say(self, stream: WebSocket, phase: Phase, subject: Subject = ONE) -> None:
        """Returns when it is known."""
        stream.send(encode([Report(1, phase)]).decode())
        await self.until(subject, phase)

    async def until(self, subject: Subject, phase: str | None) -> None:
        async with asyncio.timeout(10):
            while _phase(self.runners.report(subject)) != phase:
                self._news.clear()
                await self._news.wait()

    async def open(self) -> None:
        await self._http.listen_unix(self._socket)

    async def close(self) -> None:
        await self._http.close(grace_seconds=0)


def _phase(report: Report | None) -> str | None:
    return None if report is None else report.phase


@pytest.fixture
async def hub(tmp_path: Path) -> AsyncIterator[Hub]:
    made = Hub(tmp_path)
    await made.open()
    yield made
    await made.close()


async def test_what_a_runner_says_is_known_and_told(hub: Hub) -> None:
    stream = await hub.connect()
    await hub.say(stream, "Idle")
    await hub.say(stream, "Held")
    assert hub.heard == [ONE, ONE] and hub.runners.report(OTHER) is None


async def test_it_is_told_what_is_sent_to_it(hub: Hub) -> None:
    stream = await hub.connect()
    await hub.say(stream, "Idle")
    assert hub.runners.send(ONE, Hold("me"))
    assert to_runner.decode(await stream.receive()) == [Hold("me")]


async def test_what_is_sent_in_one_iteration_of_the_loop_comes_as_one_frame_in_its_order(hub: Hub) -> None:
    stream = await hub.connect()
    await hub.say(stream, "Idle")
    sent: list[ToRunner] = [Acknowledge("a"), Hold("me"), Acknowledge("b")]
    assert all(hub.runners.send(ONE, one) for one in sent)
    assert to_runner.decode(await stream.receive()) == sent


async def test_a_frame_does_not_grow_without_a_bound(hub: Hub) -> None:
    stream = await hub.connect()
    await hub.say(stream, "Idle")
    sent = [Assign(Job(str(number), "command", ("x" * 600_000,), {}, "")) for number in range(4)]
    assert all(hub.runners.send(ONE, one) for one in sent)
    assert [to_runner.decode(await stream.receive()) for _ in sent] == [[one] for one in sent]


async def test_what_was_sent_before_a_stream_is_closed_comes_before_its_end(hub: Hub) -> None:
    stream = await hub.connect()
    await hub.say(stream, "Idle")
    its = hub.runners.stream(ONE)
    assert its is not None and hub.runners.send(ONE, Hold("me"))
    its.start_closing(1000)
    assert to_runner.decode(await stream.receive()) == [Hold("me")]
    assert (await end_of(stream)).code == 1000


async def test_a_runner_for_which_too_much_waits_is_cut_off(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = await hub.connect()
    await hub.say(stream, "Idle")
    monkeypatch.setattr(module, "BUFFERED_BYTES_MAX", 1000)
    assert hub.runners.send(ONE, Hold("a" * 600)) and not hub.runners.send(ONE, Hold("b" * 600))
    assert not hub.runners.send(ONE, Hold("c"))
    assert (await end_of(stream)).code == TOO_SLOW
    await hub.until(ONE, None)


async def test_messages_of_one_frame_are_taken_in_their_order(hub: Hub) -> None:
    heard: list[object] = []
    hub.runners.on_job_news(lambda subject, news: heard.append(news))
    hub.runners.on_outcomes(lambda subject, outcome: heard.append(outcome.id))
    stream = await hub.connect()
    ended = Ended(Outcome("b", "Succeeded", 1.0, 2.0))
    news = [Report(1, "Waiting"), ended, Jobs("c", ("d",)), Began("c", 3.0), Returned("d"), Report(1, "Idle")]
    stream.send(encode(news).decode())
    await hub.until(ONE, "Idle")
    assert heard == ["b", Jobs("c", ("d",)), Began("c", 3.0), Returned("d")] and hub.heard == [ONE, ONE]


async def test_nobody_is_there_to_be_told(hub: Hub) -> None:
    assert not hub.runners.send(ONE, Hold("me"))


async def test_what_it_said_is_gone_with_its_stream_and_that_is_told(hub: Hub) -> None:
    stream = await hub.connect()
    await hub.say(stream, "Idle")
    stream.abort()
    await hub.until(ONE, None)
    assert hub.heard == [ONE, ONE] and not hub.runners.send(ONE, Hold("me"))


async def test_a_second_stream_takes_the_place_of_the_first(hub: Hub) -> None:
    first = await hub.connect()
    await hub.say(first, "Idle")
    second = await hub.connect()
    await hub.say(second, "Held")
    assert (await end_of(first)).code == REPLACED
    assert _phase(hub.runners.report(ONE)) == "Held"
    hub.runners.send(ONE, Hold("me"))
    assert to_runner.decode(await second.receive()) == [Hold("me")]


async def test_of_a_stream_that_was_replaced_nothing_counts_any_more(hub: Hub) -> None:
    first = await hub.connect()
    await hub.say(first, "Idle")
    second = await hub.connect()
    first.send(encode([Report(1, "Failed")]).decode())
    await hub.say(second, "Held")
    await end_of(first)
    assert _phase(hub.runners.report(ONE)) == "Held"


async def test_a_new_stream_has_said_nothing_yet(hub: Hub) -> None:
    first = await hub.connect()
    await hub.say(first, "Idle")
    before = hub.runners.stream(ONE)
    second = await hub.connect()
    await end_of(first)
    assert hub.runners.report(ONE) is None and hub.runners.stream(ONE) is not before
    second.abort()


RUBBISH = {
    "no JSON": "{",
    "no list": '{"type":"report","run":1,"phase":"Idle"}',
    "no message": '[{"type":"hold"}]',
    "no phase": '[{"type":"report","run":1,"phase":"Dancing"}]',
    "no number": '[{"type":"report","run":"one","phase":"Idle"}]',
}


@pytest.mark.parametrize("said", [*RUBBISH.values(), b"\xff\xfe"], ids=[*RUBBISH, "no text"])
async def test_rubbish_closes_it(hub: Hub, said: str | bytes) -> None:
    stream = await hub.connect()
    await hub.say(stream, "Idle")
    stream.send(said)
    assert (await end_of(stream)).code == BAD_MESSAGE
    await hub.until(ONE, None)


async def test_one_that_talks_rubbish_is_no_harm_to_another(hub: Hub) -> None:
    good, bad = await hub.connect(OTHER), await hub.connect(ONE)
    await hub.say(good, "Idle", OTHER)
    bad.send("{")
    await end_of(bad)
    await hub.say(good, "Held", OTHER)


async def test_a_runner_of_a_namesake_is_another_one(hub: Hub) -> None:
    stream = await hub.connect(ONE)
    await hub.say(stream, "Idle")
    assert hub.runners.report(ONE._replace(uid="later")) is None


async def test_who_no_longer_listens_is_told_nothing(hub: Hub) -> None:
    heard: list[Subject] = []
    end = hub.runners.listen(heard.append)
    stream = await hub.connect()
    await hub.say(stream, "Idle")
    end()
    await hub.say(stream, "Held")
    assert heard == [ONE]


async def test_after_a_start_there_is_time_to_come_back_and_then_no_more(hub: Hub) -> None:
    assert hub.runners.may_return() == RETURN_SECONDS_MAX
    hub.now += RETURN_SECONDS_MAX
    assert hub.runners.may_return() == 0


async def test_the_protocol_is_versioned() -> None:
    assert PROTOCOL == "rota-runner-v2"
