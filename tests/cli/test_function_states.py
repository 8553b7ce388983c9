"""The states that a deploy and a wait read from the status of a function."""

from __future__ import annotations

import asyncio
import io
from typing import Any

import pytest

from rota import Client
from rota.api import Function
from rota.cli import function_states
from rota.cli.function_states import State, Waiting, state_of, states
from rota.cli.patience import Patience
from tests.cli.conftest import Terminal
from tests.until import until_async

NAME = "f"
SPEC = {"entrypoint": "a:b", "source": {"inline": ""}}
BODY = {"apiVersion": Function.api.api_version, "kind": "Function", "metadata": {"name": NAME}, "spec": SPEC}
SECONDS = 20.0


def condition(type_: str, status: str, reason: str, message: str = "", generation: int = 1) -> dict[str, Any]:
    return {"type": type_, "status": status, "reason": reason, "message": message, "observedGeneration": generation}


def function(*conditions: dict[str, Any], generation: int = 1, **status: Any) -> dict[str, Any]:
    return {"metadata": {"name": NAME, "generation": generation}, "status": {"conditions": [*conditions], **status}}


READY = condition("Ready", "True", "Ready")
NOT_LOADED = (condition("Ready", "False", "ImportFailed", "why"), condition("Loaded", "False", "ImportFailed", "why"))


@pytest.mark.parametrize(
    ("seen", "verdict"),
    [
        (function(READY), "Ready"),
        (function(*NOT_LOADED), "NotLoaded"),
        # It says nothing of the newest form.
        (function(*NOT_LOADED, generation=2), "Unobserved"),
        (function(READY, generation=2), "Unobserved"),
        # A failure of what was before does not count, once something is said of what is now.
        (function(condition("Ready", "False", "Preparing", generation=2), NOT_LOADED[1], generation=2), "Coming"),
        (function(condition("Ready", "False", "DependencyNotFound")), "HeldUp"),
        (function(condition("Ready", "False", "Loading"), condition("Loaded", "Unknown", "Loading")), "Coming"),
        ({"metadata": {"name": NAME}}, "Unobserved"),
        (None, "Gone"),
    ],
)
def test_verdicts(seen: dict[str, Any] | None, verdict: str) -> None:
    assert state_of(seen).verdict == verdict


def test_that_an_earlier_version_answers_is_known() -> None:
    assert not state_of(function(*NOT_LOADED)).has_before
    assert state_of(function(*NOT_LOADED, lastLoaded={"version": "v"})).has_before


def waited(rota: Terminal, *steps: list[dict[str, Any]]) -> list[tuple[str, State]]:
    """Return the states that are reported of a function whose conditions become these, one after the other."""
    told: list[tuple[str, State]] = []

    async def act(client: Client) -> None:
        await client.create(BODY)
        waiting = asyncio.create_task(states(client, [NAME], SECONDS, lambda name, state: told.append((name, state))))
        for conditions in steps:
            await asyncio.sleep(0)
            live = await client.get(Function.api, NAME)
            await client.update_status({**live, "status": {"conditions": conditions}})
        await waiting

    rota.act(act)
    return told


def test_it_is_told_once_when_it_is_known(rota: Terminal) -> None:
    loading = [condition("Ready", "False", "Loading")]
    assert waited(rota, loading, [READY]) == [(NAME, State("Ready", "Ready"))]


def test_what_something_else_holds_up_is_not_waited_for_long(rota: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(function_states, "HELD_UP_SECONDS", 0.01)
    lacking = condition("Ready", "False", "DependencyNotFound", "no Secret")
    assert waited(rota, [lacking]) == [(NAME, State("HeldUp", "DependencyNotFound", "no Secret"))]


def test_a_server_whose_controllers_do_not_run_is_not_waited_for(
    rota: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(function_states, "UNOBSERVED_SECONDS", 0.01)
    assert waited(rota) == [(NAME, function_states.UNOBSERVED)]


def test_when_it_is_waited_no_longer_it_is_told_as_it_is(rota: Terminal) -> None:
    told: list[tuple[str, State]] = []
    coming = State("Coming", "Preparing", "packages")

    async def act(client: Client) -> None:
        live = await client.create(BODY)
        conditions = [condition("Ready", "False", "Preparing", "packages")]
        await client.update_status({**live, "status": {"conditions": conditions}})
        waiting = Waiting(client, [NAME], lambda name, state: told.append((name, state)))
        reading = asyncio.create_task(waiting.read(Patience()))
        await until_async(lambda: waiting.latest.get(NAME) == coming, lambda: waiting.latest)
        assert not told
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)
        waiting.end()

    rota.act(act)
    assert told == [(NAME, coming)]


def test_waiting_for_a_function_fails_at_once_when_it_cannot_be_loaded(rota: Terminal) -> None:
    rota.act(lambda client: client.create(BODY))

    async def meanwhile(client: Client, _: io.StringIO) -> None:
        live = await client.get(Function.api, NAME)
        await client.update_status({**live, "status": {"conditions": [*NOT_LOADED]}})

    ran = rota("wait", "fn/f", "--timeout=20s", meanwhile=meanwhile)
    assert ran.code == 1 and "function.rota.dev/f cannot be loaded: ImportFailed: why\n" in ran.err
    # Who says what to wait for waits for that.
    ran = rota("wait", "fn/f", "--for=condition=Ready", "--timeout=50ms")
    assert ran.code == 1 and "has not come true in time" in ran.err
