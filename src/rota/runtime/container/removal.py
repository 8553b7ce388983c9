"""The end of a container, for certain."""

from __future__ import annotations

import asyncio

from rota.runtime.container.client import Said, ask
from rota.runtime.container.dialect import DIALECTS, base
from rota.runtime.container.facts import Facts
from rota.runtime.container.monitors import have_ended, monitors_of

REMOVE_SECONDS_MAX = 30
ATTEMPTS_MAX = 5
# A monitor ends by itself when its container has, after it has tidied up.
TIDY_SECONDS_MAX = 0.5
END_SECONDS_MAX = 2.0


class EngineFailed(Exception):  # noqa: N818 - named for what is the case
    """The engine did not do what it was told, and says why."""


async def remove(facts: Facts, name: str) -> None:
    """End and remove a container at once, in whatever state it is; that there is none is fine.

    When this returns nothing of it is left. Raises `EngineFailed`.
    """
    dialect = DIALECTS[facts.engine]
    said = Said(0, "", "")
    for _ in range(ATTEMPTS_MAX):
        said = await ask([*base(facts), *dialect.remove, name], seconds_max=REMOVE_SECONDS_MAX)
        is_unheld = not dialect.has_monitors or await _end_monitors(facts, name)
        if is_unheld and not await _is_listed(facts, name):
            return
    raise EngineFailed(f"{facts.engine} does not remove the container {name}: {said.words}")


async def names(facts: Facts, condition: str) -> list[str]:
    """Of all containers that meet a condition, whatever their state. Raises `EngineFailed`."""
    said = await _list(facts, condition)
    if said.code != 0:
        raise EngineFailed(f"{facts.engine} does not list its containers: {said.words}")
    return said.out.split()


async def _is_listed(facts: Facts, name: str) -> bool:
    said = await _list(facts, f"name=^{name}$")
    return said.code != 0 or name in said.out.split()


async def _list(facts: Facts, condition: str) -> Said:
    return await ask(
        [*base(facts), "ps", "--all", "--no-trunc", f"--filter={condition}", "--format={{.Names}}"],
        seconds_max=REMOVE_SECONDS_MAX,
    )


async def _end_monitors(facts: Facts, name: str) -> bool:
    """Whether none holds a container of this name any more."""
    found = await asyncio.to_thread(monitors_of, name, facts.monitor)
    if await have_ended(found, TIDY_SECONDS_MAX):
        return True
    # What belongs to an ordinary user's containers is only known in the namespace that podman made for them.
    within = [*base(facts), "unshare"] if facts.is_rootless else []
    for monitor in found:
        command = [*within, facts.oci_runtime, "delete", "--force", monitor.container_id]
        await ask(command, seconds_max=REMOVE_SECONDS_MAX)
    return await have_ended(found, END_SECONDS_MAX)
