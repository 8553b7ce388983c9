"""Instances as containers: podman, or else docker, run in the foreground as a child of the keeper.

Promises:
- What the host needs is found out by trying, never assumed: the OCI runtime, the cgroup manager, ulimits, whether
  limits of memory and CPU are held. `available` says what was found, or why there is nothing.
- What comes out is plain data, an argv and an environment: whoever starts it has the container's output as its own,
  and its exit code as its own.
- `ask_to_end` reaches what runs in the container. So does a signal to the command's own process, but not in the moment
  in which it starts the container: then the command ends and the container goes on.
- No value of an environment is ever an argument. See `environment` for the way it takes.
- `remove` returns when nothing is left, also of a container whose client was killed half-way: the process, its monitor,
  its cgroup, its record. A client that is killed leaves its container running, so that whoever kills one removes.
- An image that is not there is pulled once, however many want it, and for so long and no longer.

What a container may do: as a Pod may by default, and less. It has the few capabilities that the entrypoints of common
images use to become an ordinary user, and no way to gain more; its user is its image's, and root where that says
nothing. When Rota is root that is the host's root, held by namespaces, the engine's filter of system calls and the
missing capabilities; when Rota is an ordinary user it is not. It has no init of its own, as in a Pod: what runs as
process 1 has to expect SIGTERM.

Podman is tested for real. Docker is not: what differs is in one table (`dialect`), written after its documentation,
and held by tests against a stand-in.

Never: starts an instance's container itself, restarts one, pulls what is named `localhost/…`.
"""

from rota.runtime.container.availability import Found, available
from rota.runtime.container.engine import Engine, EngineFailed
from rota.runtime.container.facts import Facts
from rota.runtime.container.names import container_name

__all__ = ["Engine", "EngineFailed", "Facts", "Found", "available", "container_name"]
