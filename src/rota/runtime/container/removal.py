"""Ends and removes containers, with all that a killed client may have left of them."""

from __future__ import annotations

import asyncio

from rota.runtime.container.client import EngineOutput, run_program
from rota.runtime.container.dialect import DIALECTS, Facts, base
from rota.runtime.container.monitors import have_ended, monitors_of
from rota.runtime.interface import Refused

REMOVE_SECONDS_MAX = 30
ASK_SECONDS_MAX = 10
STOP_SIGNAL = "{{.Config.StopSignal}}"
NO_VALUE = "<no value>"
ATTEMPTS_MAX = 5
# A monitor ends by itself when its container has, after it has tidied up.
TIDY_SECONDS_MAX = 0.5
END_SECONDS_MAX = 2.0


class EngineFailed(Refused):
    """A command of the engine failed. The order can be tried again: its reason is Provisioning."""

    def __init__(self, message: str) -> None:
        super().__init__("Provisioning", message)


async def remove(facts: Facts, name: str) -> None:
    """Kill and remove a container in any state. No container of this name is no error.

    When this returns, nothing of it is left. Raises `EngineFailed`.
    """
    dialect = DIALECTS[facts.engine]
    said = EngineOutput(0, "", "")
    for _ in range(ATTEMPTS_MAX):
        ids = await _ids(facts, name)
        said = await run_program([*base(facts), *dialect.remove, name], seconds_max=REMOVE_SECONDS_MAX)
        is_unheld = not dialect.has_monitors or await _end_remains(facts, name, ids)
        if is_unheld and not await _ids(facts, name):
            return
    raise EngineFailed(f"{facts.engine} does not remove the container {name}: {said.failure}")


async def ask_to_end(facts: Facts, name: str) -> bool:
    """Send a container the stop signal of its image, or SIGTERM. Report whether there was one.

    Better than a signal to its client, which passes none on before it has started the container. And an ordinary
    user's podman is two processes, of which one passes signals on to the other: after a signal to both, as to a group,
    the second finds an ended container, and the exit code is lost.
    """
    said = await run_program(
        [*base(facts), "container", "inspect", f"--format={STOP_SIGNAL}", name], seconds_max=ASK_SECONDS_MAX
    )
    if said.code != 0:
        return False
    wanted = said.out.strip().removeprefix(NO_VALUE) or "TERM"
    said = await run_program([*base(facts), "kill", f"--signal={wanted}", name], seconds_max=ASK_SECONDS_MAX)
    return said.code == 0


async def names(facts: Facts, condition: str) -> list[str]:
    """Return the names of all containers that match a filter, whatever their state. Raises `EngineFailed`."""
    return await _list(facts, condition, "{{.Names}}")


async def _ids(facts: Facts, name: str) -> set[str]:
    return {*await _list(facts, f"name=^{name}$", "{{.ID}}")}


async def _list(facts: Facts, condition: str, wanted: str) -> list[str]:
    said = await run_program(
        [*base(facts), "ps", "--all", "--no-trunc", f"--filter={condition}", f"--format={wanted}"],
        seconds_max=REMOVE_SECONDS_MAX,
    )
    if said.code != 0:
        raise EngineFailed(f"{facts.engine} does not list its containers: {said.failure}")
    return said.out.split()


async def _end_remains(facts: Facts, name: str, ids: set[str]) -> bool:
    """End the monitors of a container, and delete it in the OCI runtime. Report whether no monitor is left."""
    monitors = await asyncio.to_thread(monitors_of, name, facts.monitor)
    await have_ended(monitors, TIDY_SECONDS_MAX)
    # Containers of an ordinary user are known only in the user namespace that podman made for them.
    within = [*base(facts), "unshare"] if facts.is_rootless else []
    for container_id in ids | {monitor.container_id for monitor in monitors}:
        for program in filter(None, (facts.oci_runtime, facts.gvisor)):
            # Succeeds also for a container that is gone, or that another runtime made.
            command = [*within, program, "delete", "--force", container_id]
            await run_program(command, seconds_max=REMOVE_SECONDS_MAX)
    return await have_ended(monitors, END_SECONDS_MAX)
