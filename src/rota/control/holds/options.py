"""The options of a claim's hold. They are in the assignment of the instance, and end with it."""

from __future__ import annotations

import msgspec

from rota.api import Instance
from rota.api.instance import Container
from rota.api.parts import EnvVar


class Options(msgspec.Struct, omit_defaults=True):
    """The options of a claim, and the instance as it was when the hold began."""

    run: str = ""
    """The run of the instance when the hold began. The claim ends if another run follows."""
    logs: dict[str, tuple[int, int]] = {}
    """The number and size of each container's log file when the hold began: the holder does not get what was in it."""
    images: dict[str, str] = {}
    env: list[EnvVar] = []
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    covered_labels: dict[str, str] = {}
    covered_annotations: dict[str, str] = {}
    """The values of the same keys before the hold. They are restored at its end."""

    @property
    def changes_runs(self) -> bool:
        return bool(self.images or self.env)


def options_of(instance: Instance) -> Options:
    """Return the options of the claim that holds an instance."""
    assigned = instance.spec.assignment
    if assigned is None or assigned.kind != "Claim" or assigned.options is None:
        return Options()
    return msgspec.convert(assigned.options, Options)


def run_of(instance: Instance) -> str:
    """Return an identifier of the instance's run. It changes when a container ends, and when one is started again."""
    status = instance.status
    if status is None:
        return ""
    ended = status.last_exit.time if status.last_exit is not None else None
    return f"{status.runtime_id}#{status.restarts}#{ended.timestamp() if ended is not None else ''}"


def is_restarted_for(instance: Instance) -> bool:
    """Report whether an instance has to be started anew for the options of its claim."""
    return not has_runner(instance) and options_of(instance).changes_runs


def has_runner(instance: Instance) -> bool:
    """Report whether an instance has a runner: it runs tasks, or has a workspace."""
    return instance.spec.worker is not None or instance.spec.workspace_ref is not None


def as_held(instance: Instance, container: Container) -> Container:
    """Return a container with the image and the environment of the claim that holds the instance."""
    if not is_restarted_for(instance):
        return container
    options = options_of(instance)
    image = options.images.get(container.name, container.image)
    env = list({one.name: one for one in (*container.env, *options.env)}.values())
    return msgspec.structs.replace(container, image=image, env=env)
