"""What keeps one instance away from the host and from all others: bubblewrap.

Promises, for whatever runs in it:
- It sees its own processes, its own /tmp, /dev and /proc, a read-only system, the Python that runs workers, its storage
  and what was bound for it. Nothing else of the disk: no home directory, no `$ROTA_HOME`, no other instance.
- It writes to its storage, /tmp and /dev/shm, and nowhere else.
- It has no capability and can gain none; it can make no user namespace, so it never mounts anything.
- When Rota is root it has a uid of its own. Otherwise it has Rota's, and only the namespaces keep it apart.
- It has no network but its own loopback; or that and a proxy as its only way out; or the host's network, abstract
  sockets included.
- It ends with its first process, and with the process that started it.

How nothing leaks. The command that comes out is plain data: an argv and an environment. Options are read by bubblewrap
from a file of the instance's scratch folder, so that neither `ps` on the host nor /proc/1/cmdline inside shows them.
The instance's environment never is an argument, and never is the environment of a program that runs before the uid is
given up: an `LD_PRELOAD` in it would be code that runs as root, outside. It travels as the *values* of variables
`ROTA_ENV_0…`, which mean nothing to a loader, and the stage, which runs inside and as the instance, unpacks them. They
can be read in /proc/PID/environ of the host, by root and the uid that runs Rota alone.

For whoever starts the command:
- From a thread that lives as long as the sandbox shall: the kernel ties "dies with its parent" to the thread.
- With pipes for output, owned by the instance's uid, if it shall be able to open /dev/stdout anew.
- A signal to the first process, which is bubblewrap, ends everything at once and without grace. Who is to have grace is
  `WRAPPERS` processes below it.

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
