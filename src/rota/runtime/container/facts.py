"""What was found out about an engine, as it is kept on disk."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct


class Facts(Struct, frozen=True):
    """An engine that works on this host, and what it takes to work."""

    engine: Literal["podman", "docker"]
    program: str
    version: str
    options: tuple[str, ...] = ()
    """For every command, before its name."""
    run_options: tuple[str, ...] = ()
    """For every container."""
    holds_memory: bool = False
    holds_cpus: bool = False
    is_rootless: bool = False
    oci_runtime: str = ""
    monitor: str = ""
    """The programs that make a container and hold it, where they are ours and not a daemon's."""
    gvisor: str = ""
    """The program that makes a container with a kernel of its own, gVisor's `runsc`, if it works here."""
    no_gvisor: str = ""
    """Why there is none, and what to do about it."""
    needs_relabel: bool = False
    """SELinux: what is bound has to be labelled for the container."""

    @property
    def needed(self) -> str:
        """What had to be said to it beyond what it does by itself, for people."""
        return " ".join((*self.options, *self.run_options))

    @property
    def limits(self) -> str:
        held = [name for name, is_held in (("memory", self.holds_memory), ("cpus", self.holds_cpus)) if is_held]
        return " and ".join(held)
