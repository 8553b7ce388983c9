"""Instances as containers: podman, or else docker, run in the foreground as a child of the keeper.

- *Tried, not assumed.* The OCI runtime, the cgroup manager, the ulimits, and whether limits of memory and CPU are held
  are found out by trying. `available` returns the engine, or why there is none.
- *Plain data.* The result is an argv and an environment. The process that executes it has the container's output and
  exit code as its own.
- *Asked to end.* `ask_to_end` reaches the container. A signal to the command's own process does so too, except in the
  moment in which it starts the container: then the command ends and the container goes on.
- *No secret in arguments.* No value of an environment is an argument. `environment` describes the way it takes.
- *Removed completely.* `remove` returns when nothing is left, also of a container whose client was killed half-way: its
  process, its monitor, its cgroup, its record. A killed client leaves its container running: whoever kills one removes.
- *Pulled once.* A missing image is pulled once, however many orders want it, within a bounded time.

A container may do what a Pod may by default, and less. It has the few capabilities that the entrypoints of common
images use to become an ordinary user, and cannot gain more. Its user is that of its image, or root. With Rota as root
that is the host's root, confined by namespaces, the engine's filter of system calls and the missing capabilities; if
Rota is an ordinary user it is not. As in a Pod there is no init: process 1 has to handle SIGTERM.

Podman is tested for real. Docker is not: the differences are in one table (`dialect`), written after its documentation,
and held by tests against a stand-in.

Never: starts an instance's container itself, restarts one, pulls an image named `localhost/…`.
"""

from rota.runtime.container.availability import EngineAvailability, available
from rota.runtime.container.dialect import Facts
from rota.runtime.container.engine import Engine, EngineFailed, container_name

__all__ = ["Engine", "EngineAvailability", "EngineFailed", "Facts", "available", "container_name"]
