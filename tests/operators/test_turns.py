"""Tasks and claims at a site whose two operators lead by turns, killed and stopped at any moment."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
from collections import Counter
from collections.abc import Awaitable, Callable
from itertools import pairwise
from pathlib import Path

import pytest

from rota.client import Client
from tests.operators.processes import kubeconfig_of
from tests.operators.turns import Change, Held, Line, Turns
from tests.server.live import ROTA, live

TURNS = int(os.environ.get("ROTA_TURNS", "3"))
"""More of them: `make chaos`."""
SEED = int(os.environ.get("ROTA_TURNS_SEED", "1"))
CLIENTS = 3
Step = Callable[[Turns], Awaitable[None]]
STEPS: list[tuple[int, Step]] = [
    (5, Turns.kill_leader),
    (4, Turns.stop_leader),
    (2, Turns.pause_leader),
    (1, Turns.end_leader),
]
"""Events, each with its weight. The first two always happen."""
KILLS: list[tuple[int, Step]] = [(2, Turns.kill_worker_and_leader), (4, Turns.kill_worker), *STEPS]
"""Those, and workers that are killed, also while nobody leads."""


def token(home: Path, name: str) -> str:
    made = [ROTA, "token", "create", name, "--scope", "admin", "--home", str(home)]
    return subprocess.run(made, check=True, capture_output=True, text=True).stdout.split()[-1]


@pytest.mark.timeout(240 + 60 * TURNS)
async def test_whoever_leads_tasks_run_once_in_order_and_nothing_is_held_twice_or_for_ever(tmp_path: Path) -> None:
    turns = await played(tmp_path, STEPS)
    every_task_ran_once(turns)
    left_in_order(turns, tmp_path)


@pytest.mark.timeout(240 + 60 * TURNS)
async def test_whoever_leads_and_whichever_worker_is_killed_each_attempt_runs_once_and_every_task_ends(
    tmp_path: Path,
) -> None:
    turns = await played(tmp_path, KILLS)
    assert turns.done["worker"]
    every_attempt_ran_once(turns)
    left_in_order(turns, tmp_path)


async def played(tmp_path: Path, steps: list[tuple[int, Step]]) -> Turns:
    """Have clients at work while these steps happen, until all that they asked for is over."""
    with live(tmp_path / "home", "--no-controllers") as server:
        names = ("one", "two")
        own = [kubeconfig_of(server.kubeconfig, token(server.home, name), tmp_path / name) for name in names]
        client = Client.connect(kubeconfig=server.kubeconfig, manager="tester")
        turns = Turns(client, tmp_path / "site", own, SEED)
        try:
            async with turns.watched():
                await turns.begin()
                clients = [asyncio.create_task(turns.submit())]
                clients += [asyncio.create_task(turns.claim(number)) for number in range(CLIENTS)]
                for number in range(TURNS):
                    await turns.progress()
                    [(_, step)] = [steps[number]] if number < 2 else turns.chance.choices(steps, [o for o, _ in steps])
                    await step(turns)
                await turns.progress()
                await turns.settle(clients)
                await turns.end()
            print(
                f"seed {SEED}: {dict(turns.done)}; {len(turns.tasks())} tasks, {len(turns.held)} claims held,"
                f" {len(turns.history)} changes"
            )
        finally:
            turns.close()
            await client.close()
    return turns


def left_in_order(turns: Turns, folder: Path) -> None:
    holders_are_served_in_order(turns)
    claims_are_exclusive(turns.held, turns.lines())
    no_instance_has_two_holders(turns.history)
    only_leaders_write(folder / "home" / "audit.log")


def every_task_ran_once(turns: Turns) -> None:
    """No worker was lost, so there is one attempt of each, which did all its work; a cancelled one at most one."""
    said = Counter((line.task, line.what) for line in turns.lines())
    assert {key: count for key, count in said.items() if count > 1} == {}
    tasks = {one.metadata.name: one for one in turns.tasks()}
    assert tasks.keys() == {name for names in turns.submitted.values() for name in names}
    for name, task in tasks.items():
        status = task.status
        assert status is not None and not status.losses, task
        if name in turns.cancelled and status.phase == "Cancelled":
            continue
        assert status.phase == "Succeeded" and status.tries == 1, task
        assert said[name, "begin"] == said[name, "end"] == 1, (name, said)


def every_attempt_ran_once(turns: Turns) -> None:
    """No attempt begins, or ends, twice. A task has succeeded, after as many other attempts as it has lost workers."""
    said = Counter((line.attempt, line.what) for line in turns.lines())
    assert {key: count for key, count in said.items() if count > 1} == {}
    tasks = {one.metadata.name: one for one in turns.tasks()}
    assert tasks.keys() == {name for names in turns.submitted.values() for name in names}
    for name, task in tasks.items():
        status = task.status
        assert status is not None, name
        if name in turns.cancelled and status.phase == "Cancelled":
            continue
        assert status.phase == "Succeeded" and status.tries == status.losses + 1, task
        last = f"{task.metadata.uid}.{status.losses}"
        assert said[last, "begin"] == said[last, "end"] == 1, (name, said)


def holders_are_served_in_order(turns: Turns) -> None:
    """On the pool with one instance, the tasks of a holder begin in the order in which they came."""
    for queue, names in turns.submitted.items():
        if queue.startswith("solo/"):
            place = {name: number for number, name in enumerate(names)}
            begun = [line.task for line in turns.lines() if line.what == "begin" and line.task in place]
            overtaken = [(one, other) for one, other in pairwise(begun) if place[one] > place[other]]
            assert overtaken == [], f"{queue}: {overtaken}"


def claims_are_exclusive(held: list[Held], lines: list[Line]) -> None:
    """While a client relied on a claim, nobody else did on the same instance, and no task ran there."""
    for one in held:
        others = [other for other in held if other is not one and other.instance == one.instance]
        assert not [other for other in others if other.since < one.until and one.since < other.until], one
        assert not [line for line in lines if line.instance == one.instance and one.since <= line.at <= one.until], one


def no_instance_has_two_holders(history: list[Change]) -> None:
    """At no revision does an instance have a claim that is bound and anything else that is bound, or runs."""
    claims: dict[str, str] = {}
    running: dict[str, str] = {}
    for change in sorted(history, key=lambda one: one.revision):
        status = change.obj.status
        if change.kind == "Instance" or status is None:
            continue
        has = claims if change.kind == "Claim" else running
        is_held = status.phase in ("Bound", "Running") and bool(status.instance_name)
        if not is_held:
            has.pop(change.name, None)
            continue
        has[change.name] = where = status.instance_name
        bound = [name for name, instance in claims.items() if instance == where]
        runs = [name for name, instance in running.items() if instance == where]
        assert len(bound) <= 1 and not (bound and runs), (change.revision, where, bound, runs)


def only_leaders_write(audit: Path) -> None:
    """From the moment that another one has the lease, the one that had it writes nothing."""
    leader = ""
    lines = [json.loads(line) for line in audit.read_text().splitlines()]
    for line in sorted((one for one in lines if one.get("revision")), key=lambda one: one["revision"]):
        if line["user"] not in ("one", "two") or line["code"] >= 300:
            continue
        if line["resource"].startswith("leases"):
            leader = line["user"]
        else:
            assert line["user"] == leader, (leader, line)
