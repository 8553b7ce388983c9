"""The options of a hold: written into the assignment of an instance, and gone with it."""

from __future__ import annotations

import msgspec

from rota.api import Instance
from rota.api.instance import Container
from rota.api.parts import EnvVar


class Options(msgspec.Struct, omit_defaults=True):
    """The options of a claim, and the instance as it was when the hold began."""

    run: str = ""
    """The run of the instance when the hold began: another run is not what was claimed."""
    logs: dict[str, tuple[int, int]] = {}
    """By container, the number and the size of its log file when the hold began: what is before is not the holder's."""
    images: dict[str, str] = {}
    env: list[EnvVar] = []
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    covered_labels: dict[str, str] = {}
    covered_annotations: dict[str, str] = {}
    """The values that the instance had under the same keys, and has again afterwards."""

    @property
    def changes_runs(self) -> bool:
        return bool(self.images or self.env)


def options_of(instance: Instance) -> Options:
    """Return the options of the claim that has an instance now."""
    assigned = instance.spec.assignment
    if assigned is None or assigned.kind != "Claim" or assigned.options is None:
        return Options()
    return msgspec.convert(assigned.options, Options)


def run_of(instance: Instance) -> str:
    """Return the run of an instance: another one when anything in it has ended, and when that is started again."""
    status = instance.status
    if status is None:
        return ""
    ended = status.last_exit.time if status.last_exit is not None else None
    return f"{status.runtime_id}#{status.restarts}#{ended.timestamp() if ended is not None else ''}"


def is_restarted_for(instance: Instance) -> bool:
    """Report whether an instance has to be started anew for the claim that has it now."""
    return not has_runner(instance) and options_of(instance).changes_runs


def has_runner(instance: Instance) -> bool:
    """Report whether an instance is run by a runner: it runs tasks, or is prepared with a workspace."""
    return instance.spec.worker is not None or instance.spec.workspace_ref is not None


def as_held(instance: Instance, container: Container) -> Container:
    """Return a container with the image and the environment that the claim asks for."""
    if not is_restarted_for(instance):
        return container
    options = options_of(instance)
    image = options.images.get(container.name, container.image)
    env = list({one.name: one for one in (*container.env, *options.env)}.values())
    return msgspec.structs.replace(container, image=image, env=env)
