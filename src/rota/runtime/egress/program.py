"""Starts the proxy of a sandbox, and becomes the command that makes the sandbox.

    python -I -S program.py SCRATCH DESCRIPTOR UID ARGV…

The proxy is a grandchild, so that the program that makes the sandbox has no child but its own. It ends when this
process does, whatever it has executed. UID: the uid that the proxy changes to; empty: it keeps its own.
"""

from __future__ import annotations

import importlib.util
import json
import os
import select
import signal
import socket
import sys
from types import ModuleType

TARGETS, REFUSED = "egress", "egress-refused"
"""Files of the scratch folder: the list of targets, and the refusals."""
HAND_OUT_SECONDS_MAX = 30.0
STANDARD = 3


def main() -> None:
    scratch, number_, uid, *argv = sys.argv[1:]
    number = int(number_)
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    sandbox = os.pidfd_open(os.getpid())
    child = os.fork()
    if child == 0:
        try:
            theirs.close()
            if os.fork() == 0:
                _become_proxy(scratch, ours, sandbox, uid)
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    ours.close()
    if theirs.fileno() == number:
        os.set_inheritable(number, True)
    else:
        os.dup2(theirs.fileno(), number, inheritable=True)
    os.execv(argv[0], argv)


def _become_proxy(scratch: str, way: socket.socket, sandbox: int, uid: str) -> None:
    proxy, egress = _loaded("proxy.py"), _loaded("../../api/egress.py")
    # It ends with its sandbox: a sandbox that was asked to end may still need it.
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN)
    with open(os.path.join(scratch, TARGETS), encoding="ascii") as file:
        targets = [egress.target(entry) for entry in json.load(file)]
    refused = os.open(os.path.join(scratch, REFUSED), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    _close_others({way.fileno(), sandbox, refused})
    if uid and os.geteuid() == 0:
        os.setgroups([])
        os.setresgid(int(uid), int(uid), int(uid))
        os.setresuid(int(uid), int(uid), int(uid))
    ready = select.poll()
    ready.register(way, select.POLLIN)
    ready.register(sandbox, select.POLLIN)
    found = dict(ready.poll(HAND_OUT_SECONDS_MAX * 1000))
    if way.fileno() not in found:
        return
    _, descriptors, _, _ = socket.recv_fds(way, 1, 1)
    if not descriptors:
        return
    listener = socket.socket(fileno=descriptors[0])
    way.sendall(b"x")
    way.close()
    proxy.Proxy(egress, targets, refused).serve(listener, sandbox)


def _loaded(name: str) -> ModuleType:
    """Load a module by its file alone: importing its packages takes long, and they are not on the path here."""
    path = os.path.normpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), name))
    spec = importlib.util.spec_from_file_location(os.path.basename(name).removesuffix(".py"), path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def _close_others(kept: set[int]) -> None:
    """Close all descriptors except `kept`, and leave the folder: the starter's output must end with the sandbox."""
    os.chdir("/")
    null = os.open(os.devnull, os.O_RDWR)
    for stream in range(STANDARD):
        os.dup2(null, stream)
    for number in map(int, os.listdir("/proc/self/fd")):
        if number >= STANDARD and number not in kept:
            os.closerange(number, number + 1)


if __name__ == "__main__":
    main()
