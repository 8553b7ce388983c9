"""The sandbox of an instance: a command of bubblewrap that keeps it from the host and from all other instances.

- *Sees little.* It sees its own processes, its own /tmp, /dev and /proc, a read-only system, the Python that runs
  workers, its storage and its binds. Nothing else of the disk: no home directory, no `$ROTA_HOME`, no other instance.
- *Writes little.* It writes to its storage, /tmp and /dev/shm, and nowhere else.
- *Gains nothing.* It has no capability and can gain none; it can make no user namespace, so it never mounts anything.
- *Its own user.* If Rota is root it has a uid of its own. Otherwise it has Rota's, and only the namespaces separate it.
- *Its own network.* It has only a loopback; or also a proxy as its only way out; or the host's network, abstract
  sockets included.
- *Ends as a whole*, with its first process, and with the process that started it.

How nothing leaks. The resulting command is plain data: an argv and an environment. Bubblewrap reads its options from a
file of the instance's scratch folder, so that neither `ps` on the host nor /proc/1/cmdline inside shows them. The
instance's environment never is an argument, and never the environment of a program that runs before the uid is given
up: an `LD_PRELOAD` in it would be code that runs as root, outside. It is passed as the *values* of variables
`ROTA_ENV_0…`, whose names mean nothing to a loader, and the stage, which runs inside and as the instance, unpacks them.
Root and the uid that runs Rota can read them in /proc/PID/environ of the host, and nobody else.

A caller starts the command
- from a thread that lives as long as the sandbox: the kernel ties "dies with its parent" to the thread;
- with pipes for output, owned by the instance's uid, if it is to be able to open /dev/stdout anew;
- and sends SIGTERM to the process `WRAPPERS` below it: a signal to the first process, which is bubblewrap, ends
  everything at once without grace.

Never: decides whether an instance is sandboxed, starts a process (but to try), falls back to something weaker.
"""

from rota.runtime.sandbox.availability import Availability, SandboxUnavailable, available, require
from rota.runtime.sandbox.command import Bind, Command, command
from rota.runtime.sandbox.identity import UID_COUNT, UID_FIRST, own, uid_of
from rota.runtime.sandbox.inside import WRAPPERS, enter, main_process
from rota.runtime.sandbox.system import unpacked

__all__ = [
    "UID_COUNT",
    "UID_FIRST",
    "WRAPPERS",
    "Availability",
    "Bind",
    "Command",
    "SandboxUnavailable",
    "available",
    "command",
    "enter",
    "main_process",
    "own",
    "require",
    "uid_of",
    "unpacked",
]
