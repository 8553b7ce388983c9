"""Runs commands in a box, for the runner that is outside of it. Standard library only, and small.

Its standard input is a socket: messages are a length in four bytes and JSON, with the descriptors that a command gets
for its own input and output. It is trusted no more than the commands it starts: they can kill it, and then the box is
lost.

- `run` starts a command in a session of its own. Its exit is reported when its first process has ended.
- `signal` goes to the command's process group.
- `clear` kills everything that any command started, wherever it went, and answers when none is left. Commands named
  by `but` go on; processes that they started are killed too. With `alone`, in a PID namespace of its own, so are
  processes that entered the namespace from outside.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import time

# Not imported at run time: each import makes every start of a box longer.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from typing import Any

LENGTH_BYTES = 4
MESSAGE_BYTES_MAX = 8 * 1024 * 1024
DESCRIPTORS_MAX = 3
READ_BYTES = 65536
PR_SET_DUMPABLE = 4
PR_SET_CHILD_SUBREAPER = 36
CLEAR_SECONDS_MAX = 10.0
CLEAR_PAUSE_SECONDS = 0.002
NO_PROGRAM, NO_PERMISSION = 127, 126
FIRST = 1
"""The pid of the first process of a PID namespace. When it ends, the kernel ends the namespace."""
LISTS_CHILDREN = os.path.exists(f"/proc/self/task/{os.getpid()}/children")


class Agent:
    """Starts commands, and reports their exits."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._commands: dict[int, tuple[str, subprocess.Popen[bytes]]] = {}
        self._arrived = bytearray()
        self._descriptors: list[int] = []
        self._woken, waking = os.pipe()
        os.set_blocking(waking, False)
        os.set_blocking(self._woken, False)
        signal.set_wakeup_fd(waking, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)

    def serve(self) -> None:
        """Serve messages until the runner closes its end of the socket."""
        with selectors.DefaultSelector() as selector:
            selector.register(self._control, selectors.EVENT_READ)
            selector.register(self._woken, selectors.EVENT_READ)
            while True:
                for ready, _ in selector.select():
                    if ready.fileobj == self._woken:
                        os.read(self._woken, READ_BYTES)
                        self._reap()
                    elif not self._read():
                        return

    def _read(self) -> bool:
        data, descriptors, _, _ = socket.recv_fds(self._control, READ_BYTES, DESCRIPTORS_MAX)
        if not data:
            return False
        self._arrived += data
        self._descriptors += descriptors
        while len(self._arrived) >= LENGTH_BYTES:
            length = int.from_bytes(self._arrived[:LENGTH_BYTES], "big")
            if length > MESSAGE_BYTES_MAX:
                return False
            if len(self._arrived) < LENGTH_BYTES + length:
                break
            message = json.loads(self._arrived[LENGTH_BYTES : LENGTH_BYTES + length])
            del self._arrived[: LENGTH_BYTES + length]
            self._do(message)
        return True

    def _do(self, message: dict[str, Any]) -> None:
        if message["do"] == "run":
            mine, self._descriptors = self._descriptors[:DESCRIPTORS_MAX], self._descriptors[DESCRIPTORS_MAX:]
            self._run(message, mine)
        elif message["do"] == "signal":
            self._signal(message["id"], message["signal"])
        else:
            self._send({"cleared": self._clear(message.get("but", ()), bool(message.get("alone")))})

    def _run(self, message: dict[str, Any], descriptors: list[int]) -> None:
        standard_input, output, errors = descriptors
        env = {**os.environ, **message["env"]}
        try:
            process = subprocess.Popen(
                message["argv"],
                stdin=standard_input,
                stdout=output,
                stderr=errors,
                env=env,
                cwd=message["cwd"],
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            why: Exception = error
            if isinstance(error, OSError) and error.filename == message["argv"][0] and _is_nowhere(error.filename, env):
                why = FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), error.filename)
            code = NO_PERMISSION if isinstance(why, PermissionError) else NO_PROGRAM
            answer = {"id": message["id"], "code": code, "error": str(why)}
        else:
            self._commands[process.pid] = message["id"], process
            answer = {"id": message["id"], "pid": process.pid}
        finally:
            for descriptor in descriptors:
                os.close(descriptor)
        self._send(answer)

    def _signal(self, id_: str, number: int) -> None:
        for pid, (known, _) in self._commands.items():
            if known == id_:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(pid, number)

    def _reap(self) -> None:
        """Reap ended commands, and orphans that were reparented to this process."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            id_, process = self._commands.pop(pid, (None, None))
            if process is not None:
                process.returncode = os.waitstatus_to_exitcode(status)
                self._send({"id": id_, "code": process.returncode})

    def _clear(self, but: Sequence[str], alone: bool) -> int:
        """Kill everything except these commands. Return how many processes are left after CLEAR_SECONDS_MAX."""
        kept = {pid for pid, (id_, _) in self._commands.items() if id_ in but}
        deadline = time.monotonic() + CLEAR_SECONDS_MAX
        self._reap()
        while not _is_clear(kept) or (alone and others(kept)):
            left = others(kept) if alone else [pid for pid in descendants(os.getpid()) if pid not in kept]
            for pid in left:
                # A process that is just entering may still have another user's uid.
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
            self._reap()
            if time.monotonic() > deadline:
                return max(1, len(left))
            time.sleep(CLEAR_PAUSE_SECONDS)
            self._reap()
        return 0

    def _send(self, message: dict[str, Any]) -> None:
        content = json.dumps(message).encode()
        self._control.sendall(len(content).to_bytes(LENGTH_BYTES, "big") + content)


def _is_nowhere(name: str, env: dict[str, str]) -> bool:
    """Report whether no folder of PATH has a program. Like a shell, skip folders that may not be searched.

    The kernel does not skip them: it reports a start there as if the program itself were forbidden.
    """
    return "/" not in name and not any(os.path.lexists(os.path.join(place, name)) for place in os.get_exec_path(env))


def _is_clear(kept: Collection[int]) -> bool:
    """Report whether this process has no descendants except the kept ones, and those have none.

    Every process of the box is a child of this process or below one: orphans are reparented to it, and only it reaps
    its children. The children of kept processes are listed first: one that is orphaned in between is then found as a
    child of this process.
    """
    if not LISTS_CHILDREN:
        return set(descendants(os.getpid())) <= set(kept)
    return not any(is_running(child) for pid in kept for child in children(pid)) and set(children(os.getpid())) <= set(
        kept
    )


def children(pid: int) -> list[int]:
    """Return the children of a process, including ended ones that are not reaped."""
    if not LISTS_CHILDREN:
        return [child for child, (_, parent) in _states() if parent == pid]
    found = b""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        for thread in os.listdir(f"/proc/{pid}/task"):
            descriptor = os.open(f"/proc/{pid}/task/{thread}/children", os.O_RDONLY | os.O_CLOEXEC)
            try:
                while data := os.read(descriptor, READ_BYTES):
                    found += data
            finally:
                os.close(descriptor)
    return [int(number) for number in found.split()]


def is_running(pid: int, proc: str = "/proc") -> bool:
    try:
        return _goes_on(str(pid), _stat(str(pid), proc)[0], proc)
    except OSError:
        return False


def others(kept: Collection[int]) -> list[int]:
    """Return all processes of this PID namespace except this one, the kept ones and the namespace's first."""
    but = {FIRST, os.getpid(), *kept}
    return [pid for pid, (state, _) in _states() if pid not in but and _goes_on(str(pid), state)]


def _goes_on(pid: str, state: str, proc: str = "/proc") -> bool:
    """Report whether a process runs. If its first thread has ended but others run, its state is Z although it runs."""
    if state not in "ZX":
        return True
    try:
        return len(os.listdir(f"{proc}/{pid}/task")) > 1
    except OSError:
        return False


def _stat(pid: str, proc: str = "/proc") -> list[str]:
    """Return the fields of /proc/PID/stat from the state on."""
    with open(f"{proc}/{pid}/stat", errors="replace") as file:
        return file.read().rpartition(")")[2].split()


def _states() -> list[tuple[int, tuple[str, int]]]:
    """Return the state and the parent of each process in /proc."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                state, parent = _stat(name)[:2]
            except OSError:
                continue
            found.append((int(name), (state, int(parent))))
    return found


def descendants(top: int) -> list[int]:
    """Return all running processes below a process."""
    parents = {pid: parent for pid, (state, parent) in _states() if _goes_on(str(pid), state)}
    found: list[int] = []
    for pid in parents:
        at = pid
        while at in parents and at != top:
            at = parents[at]
        if at == top and pid != top:
            found.append(pid)
    return found


def main() -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    # The kernel reparents orphans of commands to this process.
    if libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        sys.exit("this kernel does not let a process adopt orphans")
    # Commands have the same uid: without this they could trace this process and take its socket.
    if libc.prctl(PR_SET_DUMPABLE, 0, 0, 0, 0):
        sys.exit("this kernel does not keep a process from being traced")
    control = socket.socket(fileno=os.dup(0))
    control.set_inheritable(False)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    agent = Agent(control)
    agent._send({"ready": os.getpid(), "uid": os.getuid()})
    agent.serve()


if __name__ == "__main__":
    main()
