"""Where podman and docker differ. All else is said to both alike.

Docker's column is written after its documentation and has never met a docker: there was none to try it with.
"""

from __future__ import annotations

from typing import NamedTuple

from rota.runtime.container.facts import Facts


class Dialect(NamedTuple):
    """How one engine is told what both can do."""

    options: tuple[str, ...]
    """For every command, before its name."""
    run: tuple[str, ...]
    """Of every container: what the other engine does by itself, or does not know."""
    image: tuple[str, ...]
    """Succeeds if an image is there; the reference comes last."""
    image_absent_code: int
    image_absent_words: str
    """What it ends with, and says among other things, if there is no such image: anything else is a failure."""
    remove: tuple[str, ...]
    """Ends and removes containers at once; the name comes last. That there is none may or may not be a failure."""
    relabelled: str
    """Added to a mount, where SELinux wants it."""
    has_monitors: bool
    """Each container is held by a process of its own, which a client that is killed may leave behind."""


PODMAN = Dialect(
    # Its warnings would be in the output of the instance.
    options=("--log-level=error",),
    # The client's proxy settings are not the container's.
    run=("--http-proxy=false",),
    image=("image", "exists"),
    image_absent_code=1,
    image_absent_words="",
    remove=("rm", "--force", "--time=0", "--ignore", "--volumes"),
    relabelled="relabel=private",
    has_monitors=True,
)
DOCKER = Dialect(
    options=(),
    run=(),
    image=("image", "inspect", "--format={{.Id}}"),
    image_absent_code=1,
    image_absent_words="no such image",
    remove=("rm", "--force", "--volumes"),
    # Its --mount cannot; where SELinux is on, docker's daemon has to be told.
    relabelled="",
    has_monitors=False,
)
DIALECTS = {"podman": PODMAN, "docker": DOCKER}


def base(facts: Facts) -> list[str]:
    """What every command of an engine begins with."""
    return [facts.program, *DIALECTS[facts.engine].options, *facts.options]


def in_gvisor(facts: Facts, network: str) -> list[str]:
    """What follows that for containers that are to have a kernel of their own."""
    # By itself it would take over an interface of the container's namespace, of which there is none.
    return [f"--runtime={facts.gvisor}", f"--runtime-flag=network={network}"]
