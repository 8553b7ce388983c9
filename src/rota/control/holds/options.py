"""What a hold has of its own: written into the assignment of an instance, and gone with it."""

from __future__ import annotations

import msgspec

from rota.api import Instance
from rota.api.instance import Container
from rota.api.parts import EnvVar


class Options(msgspec.Struct, omit_defaults=True):
    """What a hold has of its own: written into the assignment, and gone with it."""

    run: str = ""
    """What ran when it began: another run is not what was claimed."""
    logs: dict[str, tuple[int, int]] = {}
    """How far the log of each container was then, by its file's number and size: what is before is not theirs."""
    images: dict[str, str] = {}
    env: list[EnvVar] = []
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    covered_labels: dict[str, str] = {}
    covered_annotations: dict[str, str] = {}
    """What the instance had in the place of some of these, and has again afterwards."""

    @property
    def changes_runs(self) -> bool:
        return bool(self.images or self.env)


def options_of(instance: Instance) -> Options:
    """Those of whoever has an instance now."""
    assigned = instance.spec.assignment
    if assigned is None or assigned.kind != "Claim" or assigned.options is None:
        return Options()
    return msgspec.convert(assigned.options, Options)


def run_of(instance: Instance) -> str:
    """What runs in an instance: another one when anything in it has ended, before and after it is started again."""
    status = instance.status
    if status is None:
        return ""
    ended = status.last_exit.time if status.last_exit is not None else None
    return f"{status.runtime_id}#{status.restarts}#{ended.timestamp() if ended is not None else ''}"


def is_restarted_for(instance: Instance) -> bool:
    """Whether what runs in an instance has to be started anew for who has it now."""
    return not has_runner(instance) and options_of(instance).changes_runs


def has_runner(instance: Instance) -> bool:
    """Whether an instance is run by a runner: it runs tasks, or is prepared with a workspace."""
    return instance.spec.worker is not None or instance.spec.workspace_ref is not None


def as_held(instance: Instance, container: Container) -> Container:
    """A container as who has the instance wants it."""
    if not is_restarted_for(instance):
        return container
    options = options_of(instance)
    image = options.images.get(container.name, container.image)
    env = list({one.name: one for one in (*container.env, *options.env)}.values())
    return msgspec.structs.replace(container, image=image, env=env)
