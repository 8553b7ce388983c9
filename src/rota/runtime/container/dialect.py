"""An engine as it works on this host, and the differences between podman and docker.

The values for docker are written after its documentation, and have not been tried with a docker.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from msgspec import Struct


class Facts(Struct, frozen=True):
    """An engine that works on this host, with the options that it needs. Kept on disk."""

    engine: Literal["podman", "docker"]
    program: str
    version: str
    options: tuple[str, ...] = ()
    """Options of every command, before its name."""
    run_options: tuple[str, ...] = ()
    """Options of every container."""
    holds_memory: bool = False
    holds_cpus: bool = False
    is_rootless: bool = False
    oci_runtime: str = ""
    monitor: str = ""
    """The programs that make a container and monitor it; empty if a daemon has them."""
    gvisor: str = ""
    """The program that makes a container with a kernel of its own, gVisor's `runsc`, if it works here."""
    no_gvisor: str = ""
    """The reason why there is no gVisor, and what to do."""
    needs_relabel: bool = False
    """SELinux is on: mounts have to be labelled for the container."""

    @property
    def needed(self) -> str:
        """The options that the engine needs on this host, as text."""
        return " ".join((*self.options, *self.run_options))

    @property
    def limits(self) -> str:
        held = [name for name, is_held in (("memory", self.holds_memory), ("cpus", self.holds_cpus)) if is_held]
        return " and ".join(held)


class Dialect(NamedTuple):
    """The options with which one engine does what both engines can do."""

    options: tuple[str, ...]
    """Options of every command, before its name."""
    run: tuple[str, ...]
    """Options of every container that only this engine needs or knows."""
    image: tuple[str, ...]
    """The command that succeeds if an image is there; the reference follows it."""
    image_absent_code: int
    image_absent_words: str
    """The exit code and words by which the engine reports a missing image. Anything else is a failure of the engine."""
    remove: tuple[str, ...]
    """The command that kills and removes a container; the name follows it. It may fail if there is none."""
    relabelled: str
    """The option that labels a mount for SELinux; empty if the engine has none."""
    has_monitors: bool
    """Each container has a monitor process, which a killed client may leave behind."""


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
    # Its --mount has no such option: with SELinux, docker's daemon has to be configured.
    relabelled="",
    has_monitors=False,
)
DIALECTS = {"podman": PODMAN, "docker": DOCKER}


def base(facts: Facts) -> list[str]:
    """Return the words that every command of an engine begins with."""
    return [facts.program, *DIALECTS[facts.engine].options, *facts.options]


def in_gvisor(facts: Facts, network: str) -> list[str]:
    """Return the options of `run` for containers in gVisor."""
    # By itself it would take over an interface of the container's namespace, of which there is none.
    return [f"--runtime={facts.gvisor}", f"--runtime-flag=network={network}"]
