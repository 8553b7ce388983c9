"""Connections: shared while they are clean, closed when they are not, bounded in every way."""

from __future__ import annotations

import asyncio
import gzip
import random

import pytest

from rota.client.connection import Response
from rota.client.credentials import Credential, Fixed
from rota.client.failures import BadAnswer, ConnectionCut, NotConnected, TimedOut, TooManyStreams
from rota.client.http import HttpBackend
from rota.client.target import Tls, at_url
from rota.registry import ApiError
from tests.client.scripted import Exchange, answer, client_of, cut, say, serving, silence, watch


async def get(backend: HttpBackend) -> Response:
    return await backend.raw("GET", "/there")


async def write(backend: HttpBackend) -> Response:
    return await backend.raw("POST", "/there", b"{}")


async def test_requests_share_a_connection_that_is_kept_open() -> None:
    async with serving(answer(), answer(), answer()) as server, client_of(server) as backend:
        for _ in range(3):
            await get(backend)
        assert server.connections == 1


async def test_a_connection_that_the_server_wants_closed_is_not_used_again() -> None:
    async with serving(answer(connection="close"), answer()) as server, client_of(server) as backend:
        await write(backend)
        await write(backend)
        assert [exchange.number for exchange in server.seen] == [0, 1]


async def test_a_connection_that_the_server_closed_meanwhile_is_not_used_again() -> None:
    closed = asyncio.Event()

    async def answer_and_close(exchange: Exchange) -> None:
        await answer()(exchange)
        exchange.writer.close()
        await exchange.writer.wait_closed()
        closed.set()

    async with serving(answer_and_close, answer()) as server, client_of(server) as backend:
        await write(backend)
        await closed.wait()
        await write(backend)
        assert server.connections == 2


async def test_an_unused_connection_is_closed_after_a_while() -> None:
    ended = asyncio.Event()

    async def answer_and_wait(exchange: Exchange) -> None:
        await answer()(exchange)
        await exchange.gone()
        ended.set()

    async with serving(answer_and_wait) as server, client_of(server, idle_seconds=0.02) as backend:
        await get(backend)
        await asyncio.wait_for(ended.wait(), 60)


async def test_no_more_requests_are_under_way_than_the_bound_and_the_others_wait_their_turn() -> None:
    under_way, most = 0, 0

    async def counted(exchange: Exchange) -> None:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        await asyncio.sleep(0)
        under_way -= 1
        await answer()(exchange)

    async with serving(*[counted] * 12) as server, client_of(server, connections=3) as backend:
        await asyncio.gather(*(get(backend) for _ in range(12)))
        assert most <= 3
        assert server.connections <= 3


async def test_a_cancelled_request_closes_its_connection() -> None:
    asked, ended = asyncio.Event(), asyncio.Event()

    async def wait(exchange: Exchange) -> None:
        asked.set()
        await exchange.gone()
        ended.set()

    async with serving(wait, answer(200, {"for": "the second"})) as server, client_of(server) as backend:
        request = asyncio.create_task(get(backend))
        await asked.wait()
        request.cancel()
        with pytest.raises(asyncio.CancelledError):
            await request
        await asyncio.wait_for(ended.wait(), 60)
        assert (await get(backend)).body == b'{"for":"the second"}'
        assert server.connections == 2


async def test_a_request_cancelled_within_its_answer_does_not_leave_the_rest_to_the_next() -> None:
    half = asyncio.Event()

    async def half_an_answer(exchange: Exchange) -> None:
        await exchange.send(b"HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\n0123456789")
        half.set()
        await exchange.gone()

    async with serving(half_an_answer, answer(200, b"whole")) as server, client_of(server) as backend:
        request = asyncio.create_task(get(backend))
        await half.wait()
        request.cancel()
        await asyncio.gather(request, return_exceptions=True)
        assert (await get(backend)).body == b"whole"


async def test_however_requests_are_cancelled_nobody_gets_the_answer_of_another() -> None:
    async def in_two_parts(exchange: Exchange) -> None:
        await asyncio.sleep(0)
        text = exchange.path.encode()
        await exchange.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(text), text[:2]))
        await asyncio.sleep(0)
        await exchange.send(text[2:])

    choice = random.Random(7)
    async with serving(*[in_two_parts] * 1000) as server, client_of(server, connections=4) as backend:

        async def ask(path: str) -> None:
            assert (await backend.raw("GET", path)).body == path.encode()

        for turn in range(60):
            asking = [asyncio.create_task(ask(f"/{turn}/{i}")) for i in range(8)]
            for task in choice.sample(asking, 4):
                for _ in range(choice.randrange(12)):
                    await asyncio.sleep(0)
                task.cancel()
            told = await asyncio.gather(*asking, return_exceptions=True)
            assert all(one is None or isinstance(one, asyncio.CancelledError) for one in told), told
        await ask("/at/last")


async def test_an_answer_after_which_more_is_said_is_good_but_its_connection_is_not() -> None:
    surplus = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nwrong"
    async with serving(say(surplus), answer(200, b"right")) as server, client_of(server) as backend:
        assert (await get(backend)).body == b"{}"
        assert (await get(backend)).body == b"right"
        assert server.connections == 2


async def test_an_answer_before_the_request_was_read_does_not_leave_the_rest_of_the_request_to_the_next() -> None:
    async with serving(answer(413, b"too much"), answer()) as server, client_of(server) as backend:
        with pytest.raises(ApiError, match="too much"):
            await backend.raw("POST", "/there", bytes(32 * 1024 * 1024), {"X-Unread": "yes"})
        await get(backend)
        assert [exchange.number for exchange in server.seen] == [0, 1]


@pytest.mark.parametrize(
    "said",
    [
        b"",
        b"HTTP/1.1 200 OK\r\nContent-",
        b"HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n",
    ],
    ids=["nothing", "half a head", "fewer bytes than promised", "no last chunk"],
)
async def test_an_answer_that_is_cut_short_is_no_answer(said: bytes) -> None:
    async with serving(cut(said)) as server, client_of(server) as backend:
        with pytest.raises(ConnectionCut, match=rf"http://127.0.0.1:{server.port} was cut"):
            await write(backend)


@pytest.mark.parametrize(
    "said",
    [
        b"SSH-2.0-OpenSSH_9.6\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: two\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\nConnection: Upgrade\r\n\r\n",
    ],
    ids=["another protocol", "no length", "two lengths", "no chunk", "an upgrade"],
)
async def test_what_is_not_http_is_told_as_such(said: bytes) -> None:
    async with serving(say(said)) as server, client_of(server) as backend:
        with pytest.raises(BadAnswer, match=r"does not answer in HTTP/1\.1"):
            await get(backend)


async def test_an_answer_without_a_length_is_as_long_as_its_connection() -> None:
    async with serving(cut(b"HTTP/1.1 200 OK\r\n\r\nall of it")) as server, client_of(server) as backend:
        assert (await get(backend)).body == b"all of it"


async def test_interim_answers_are_passed_over() -> None:
    hints = b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"
    final = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"
    async with serving(say(hints + hints + final), answer()) as server, client_of(server) as backend:
        response = await get(backend)
        assert (response.status, response.header("link"), response.body) == (200, "", b"{}")
        await get(backend)
        assert server.connections == 1


async def test_an_answer_without_content_is_empty() -> None:
    async with serving(say(b"HTTP/1.1 204 No Content\r\n\r\n"), answer()) as server, client_of(server) as backend:
        assert await get(backend) == Response(204, [], b"")
        await get(backend)
        assert server.connections == 1


async def test_a_silent_server_is_given_up() -> None:
    async with serving(silence) as server, client_of(server, read_seconds=0.05) as backend:
        with pytest.raises(TimedOut, match=r"said nothing for 0\.05 s"):
            await get(backend)


async def test_a_slow_answer_is_waited_for_as_long_as_something_comes() -> None:
    async def slowly(exchange: Exchange) -> None:
        await exchange.begin_chunks()
        for _ in range(8):
            await asyncio.sleep(0.05)
            await exchange.chunk(b"1")
        await exchange.send(b"0\r\n\r\n")

    async with serving(slowly) as server, client_of(server, read_seconds=0.2) as backend:
        assert (await get(backend)).body == b"11111111"


async def test_a_server_that_does_not_complete_the_connection_is_given_up() -> None:
    async with serving() as server, client_of(server, tls=Tls(insecure=True), connect_seconds=0.05) as backend:
        with pytest.raises(NotConnected, match=r"within 0\.05 s"):
            await get(backend)


async def test_headers_are_bounded() -> None:
    one = say(b"HTTP/1.1 200 OK\r\nX: " + b"x" * 5000 + b"\r\nContent-Length: 0\r\n\r\n")
    endless = say(b"HTTP/1.1 200 OK\r\nX: " + b"x" * 5000)
    async with serving(one, endless) as server, client_of(server, header_bytes=4096) as backend:
        for _ in range(2):
            with pytest.raises(BadAnswer, match="headers of more than 4096 bytes"):
                await get(backend)


async def test_answers_are_bounded() -> None:
    async with serving(answer(200, b"x" * 1001)) as server, client_of(server, response_bytes=1000) as backend:
        with pytest.raises(BadAnswer, match="larger than 1000 bytes"):
            await get(backend)


async def test_compressed_answers_are_decoded() -> None:
    twice = gzip.compress(b"first, ") + gzip.compress(b"second")
    acts = [answer(200, gzip.compress(b"text"), content_encoding="gzip"), answer(200, twice, content_encoding="gzip")]
    async with serving(*acts) as server, client_of(server) as backend:
        assert (await get(backend)).body == b"text"
        assert (await get(backend)).body == b"first, second"


async def test_a_small_answer_cannot_become_a_large_one() -> None:
    bomb = answer(200, gzip.compress(bytes(10_000_000)), content_encoding="gzip")
    async with serving(bomb) as server, client_of(server, response_bytes=100_000) as backend:
        with pytest.raises(BadAnswer, match="larger than 100000 bytes"):
            await get(backend)


async def test_an_answer_of_very_many_parts_is_refused() -> None:
    for part in (b"", b" "):
        many = answer(200, gzip.compress(part) * 5_000, content_encoding="gzip")
        async with serving(many) as server, client_of(server) as backend:
            with pytest.raises(BadAnswer, match="parts"):
                await get(backend)


@pytest.mark.parametrize(
    ("body", "coding"),
    [(gzip.compress(b"text")[:-4], "gzip"), (b"text", "gzip"), (b"text", "br")],
    ids=["cut short", "something else", "not asked for"],
)
async def test_a_wrong_compression_is_told(body: bytes, coding: str) -> None:
    async with serving(answer(200, body, content_encoding=coding)) as server, client_of(server) as backend:
        with pytest.raises(BadAnswer):
            await get(backend)


async def test_a_stream_is_no_faster_than_its_reader() -> None:
    size, buffer = 32 * 1024 * 1024, 64 * 1024
    received_at_once = 256 * 1024

    async def plenty(exchange: Exchange) -> None:
        await exchange.begin_chunks()
        for _ in range(size // 65536):
            await exchange.chunk(bytes(65536))
        await exchange.send(b"0\r\n\r\n")

    async with serving(plenty) as server, client_of(server, stream_buffer_bytes=buffer) as backend:
        total, largest = 0, 0
        async with backend.stream("GET", "/v1/backup") as stream:
            async for piece in stream:
                await asyncio.sleep(0)
                total, largest = total + len(piece), max(largest, len(piece))
        assert total == size
        assert largest <= buffer + received_at_once


async def test_a_compressed_stream_is_decoded_in_bounded_pieces() -> None:
    text = bytes(5_000_000)
    async with (
        serving(answer(200, gzip.compress(text), content_encoding="gzip")) as server,
        client_of(server, stream_buffer_bytes=100_000) as backend,
        backend.stream("GET", "/v1/backup") as stream,
    ):
        pieces = [piece async for piece in stream]
    assert b"".join(pieces) == text
    assert max(map(len, pieces)) <= 100_000


async def test_a_stream_read_to_its_end_leaves_its_connection_to_others() -> None:
    async with serving(watch(b"all"), answer()) as server, client_of(server) as backend:
        async with backend.stream("GET", "/v1/backup") as stream:
            assert [piece async for piece in stream] == [b"all"]
        await get(backend)
        assert server.connections == 1


async def test_a_stream_that_is_left_closes_its_connection() -> None:
    ended = asyncio.Event()

    async def endless(exchange: Exchange) -> None:
        await exchange.begin_chunks()
        await exchange.chunk(b"one")
        await exchange.gone()
        ended.set()

    async with serving(endless) as server, client_of(server) as backend:
        async with backend.stream("GET", "/v1/backup") as stream:
            assert await stream.piece() == b"one"
        await asyncio.wait_for(ended.wait(), 60)


async def test_streams_are_bounded_and_do_not_take_the_place_of_requests() -> None:
    async def open_ended(exchange: Exchange) -> None:
        await exchange.begin_chunks()
        await exchange.gone()

    async with (
        serving(open_ended, open_ended, answer()) as server,
        client_of(server, streams=2, connections=1) as backend,
        backend.stream("GET", "/a"),
        backend.stream("GET", "/b"),
    ):
        await get(backend)
        with pytest.raises(TooManyStreams):
            await backend.stream("GET", "/c").__aenter__()


async def test_a_closed_client_has_ended_what_was_under_way_and_does_nothing_more() -> None:
    asked = asyncio.Event()

    async def wait(exchange: Exchange) -> None:
        asked.set()
        await exchange.gone()

    async with serving(wait) as server, client_of(server) as backend:
        request = asyncio.create_task(write(backend))
        await asked.wait()
        await backend.close()
        with pytest.raises(ConnectionCut):
            await request
        with pytest.raises(NotConnected, match="is closed"):
            await write(backend)


async def test_a_request_that_waits_for_its_turn_does_not_outlive_the_client() -> None:
    asked = asyncio.Event()

    async def wait(exchange: Exchange) -> None:
        asked.set()
        await exchange.gone()

    async with serving(wait, wait) as server, client_of(server, connections=1) as backend:
        requests = [asyncio.create_task(write(backend)) for _ in range(2)]
        await asked.wait()
        await backend.close()
        first, second = await asyncio.gather(*requests, return_exceptions=True)
        assert isinstance(first, ConnectionCut)
        assert isinstance(second, NotConnected)
        assert len(server.seen) == 1


# The first loop ends without its connection having been closed: Python says so.
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_client_can_be_used_in_one_event_loop_after_another() -> None:
    async def first() -> tuple[HttpBackend, int]:
        async with serving(answer()) as server:
            target = at_url(f"http://127.0.0.1:{server.port}", tls=Tls(), credentials=Fixed(Credential()))
            backend = HttpBackend(target)
            await get(backend)
            return backend, server.port

    async def second(backend: HttpBackend, port: int) -> None:
        async with serving(answer(200, b"again"), port=port):
            assert (await get(backend)).body == b"again"
            await backend.close()

    asyncio.run(second(*asyncio.run(first())))
