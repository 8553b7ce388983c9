"""A server that is away while objects are waited for."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterator

import pytest

from rota.cli import patience
from rota.cli.patience import AWAY, PASSING, Patience
from rota.cli.session import CommandError
from rota.client import ConnectionFailed, NoServer
from rota.client.failures import CredentialsFailed
from rota.registry import ApiError

Coming = int | Exception


@pytest.fixture(autouse=True)
def without_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "FIRST_PAUSE_SECONDS", 0.0)


class Server:
    """A server with the outcome of each attempt to follow, one after the other."""

    def __init__(self, *attempts: list[Coming]) -> None:
        self._attempts = iter(attempts)

    async def follow(self) -> AsyncGenerator[int, None]:
        for one in next(self._attempts):
            if isinstance(one, Exception):
                raise one
            yield one


async def seen(coming: AsyncIterator[int]) -> list[int]:
    return [one async for one in coming]


async def test_what_comes_goes_on_when_the_server_is_back(capsys: pytest.CaptureFixture[str]) -> None:
    server = Server([1, ConnectionFailed("cut")], [NoServer("nobody is there")], [ConnectionFailed("again")], [1, 2])
    assert await seen(Patience().follow(server.follow)) == [1, 1, 2]
    assert capsys.readouterr().err == "the server is away, and is waited for: cut\nthe server is back\n"


@pytest.mark.parametrize("code", sorted(PASSING))
async def test_a_server_that_is_coming_is_waited_for(code: int) -> None:
    server = Server([ApiError(code, "ServiceUnavailable", "soon")], [1])
    assert await seen(Patience().follow(server.follow)) == [1]


async def test_a_refusal_is_no_absence() -> None:
    with pytest.raises(ApiError):
        await seen(Patience().follow(Server([ApiError(403, "Forbidden", "no")]).follow))


async def test_without_credentials_it_is_no_use_to_wait() -> None:
    with pytest.raises(CommandError) as failed:
        await seen(Patience().follow(Server([CredentialsFailed("the token file cannot be read")]).follow))
    assert failed.value.code == AWAY


async def test_while_the_server_is_away_nothing_is_known() -> None:
    patience = Patience()
    assert patience.doubt == "the server did not answer in time"
    coming = patience.follow(Server([1, ConnectionFailed("cut")], [2]).follow)
    assert await anext(coming) == 1 and patience.doubt == ""
    assert await anext(coming) == 2 and patience.doubt == ""
    await coming.aclose()


async def test_a_question_is_asked_until_there_is_an_answer() -> None:
    answers: Iterator[Coming] = iter([ConnectionFailed("cut"), NoServer("nobody"), 7])

    async def question() -> int:
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    patience = Patience()
    assert await patience.ask(question) == 7 and patience.doubt == ""


async def test_the_pauses_grow_up_to_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []

    async def note_pause(seconds: float) -> None:
        pauses.append(seconds)

    monkeypatch.setattr(patience, "FIRST_PAUSE_SECONDS", 1.0)
    monkeypatch.setattr(asyncio, "sleep", note_pause)
    attempts: list[list[Coming]] = [[ConnectionFailed("cut")]] * 4
    await seen(Patience().follow(Server(*attempts, [1]).follow))
    assert pauses == [1.0, 2.0, 3.0, 3.0]
