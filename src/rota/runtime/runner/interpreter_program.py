"""Calls Python functions for a runner, in a box, and keeps the modules that they import. Standard library only.

Its standard input is a socket: a message is a length in four bytes and JSON. A call comes with two descriptors, for its
input and output, which are this process's standard streams during the call. The function runs in this very process, so
the runner trusts no message from here.

- A call has its own environment, working directory and standard streams, and finds modules in that directory first.
- A call that leaves threads, an open output, or too much memory or too many descriptors is reported as `worn`, so that
  the runner does not use this process again.
- If a loaded module of the directory has changed since, the answer is `stale`, and nothing is called.
- Processes that a call leaves are reparented to this one, where the agent finds them when it clears the box.
"""

from __future__ import annotations

import _thread
import contextlib
import ctypes
import importlib
import io
import json
import os
import signal
import socket
import sys
import time

# Not imported at run time: `typing` makes every start longer.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

LENGTH_BYTES = 4
READ_BYTES = 65536
DESCRIPTORS = 2
RESULT_BYTES_MAX = 65536
ERROR_CHARACTERS_MAX = 2000
GROWTH_BYTES_MAX = 256 * 1024 * 1024
"""The most that memory may grow by all calls together."""
GROWTH_DESCRIPTORS_MAX = 64
"""The most descriptors that all calls together may leave open."""
LIBRARIES_MAX = 256
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
PR_SET_CHILD_SUBREAPER = 36
STATM, DESCRIPTORS_OPEN = "/proc/self/statm", "/proc/self/fd"
NO_CALL = 0
FAILED, TERMINATED, NO_RUNNER = 1, 143, 70
CHANGED = (-1,)
"""The identity of a module that may have changed after it was read. No file has this identity."""

_libc = ctypes.CDLL(None)
# Bound here: functions that are called may replace those of the modules.
_waitpid, _stat, _count = os.waitpid, os.stat, _thread._count
_dup, _close, _fstat, _listdir, _pread = os.dup, os.close, os.fstat, os.listdir, os.pread
FILE_TIME_STEP_NS = 10_000_000
"""The most nanoseconds by which a file's modification time may lie before the moment of the write."""


class InterpreterProgram:
    """Answers one call after the other, until its runner closes the connection."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._arrived = bytearray()
        self._descriptors: list[int] = []
        self._nothing = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        os.dup2(self._nothing, 0)
        self._pid = os.getpid()
        self._environment = dict(os.environ)
        self._is_calling = False
        self._output, self._errors = _writer(1), _writer(2)
        self._tree = ""
        self._known = set(sys.modules)
        self._files: dict[str, tuple[int, ...]] = {}
        """The files of the tree from which modules were loaded, with their identities."""
        self._libraries: list[str] = []
        self._libraries_sent = self._libraries
        self._statm = os.open(STATM, os.O_RDONLY | os.O_CLOEXEC)
        self._memory = 0
        self._memory = self._memory_now()
        self._descriptors_first = len(_listdir(DESCRIPTORS_OPEN))
        self._free = self._lowest_free()
        self._pipe = (0, 0)
        """The device and inode of the current call's output."""

    def serve(self) -> None:
        self._send({"call": NO_CALL, "up": True})
        while (message := self._receive()) is not None:
            if "warm" in message:
                self._warm(message["warm"])
                self._send({"call": NO_CALL})
            else:
                mine, self._descriptors = self._descriptors[:DESCRIPTORS], self._descriptors[DESCRIPTORS:]
                self._send({"call": message["call"], **self._answer(message, *mine)})

    def _receive(self) -> dict[str, Any] | None:
        arrived = self._arrived
        while len(arrived) < LENGTH_BYTES or len(arrived) < LENGTH_BYTES + _length(arrived):
            data, descriptors, _, _ = socket.recv_fds(
                self._control, READ_BYTES, DESCRIPTORS, flags=socket.MSG_CMSG_CLOEXEC
            )
            if not data:
                return None
            arrived += data
            self._descriptors += descriptors
        end = LENGTH_BYTES + _length(arrived)
        message: dict[str, Any] = json.loads(arrived[LENGTH_BYTES:end])
        del arrived[:end]
        return message

    def _send(self, message: dict[str, Any]) -> None:
        content = json.dumps(message).encode()
        self._control.sendall(len(content).to_bytes(LENGTH_BYTES, "big") + content)

    def _warm(self, names: list[str]) -> None:
        """Import the libraries that the interpreter before this one had imported."""
        for name in names:
            with contextlib.suppress(BaseException):
                importlib.import_module(name)
        self._known = set(sys.modules)
        self._libraries = self._libraries_sent = names

    # One call.

    def _answer(self, message: dict[str, Any], standard_input: int, output: int) -> dict[str, Any]:
        if self._is_stale(message["cwd"]):
            os.close(standard_input)
            os.close(output)
            return {"stale": True}
        began = time.time_ns() - FILE_TIME_STEP_NS
        with self._as_its_own(standard_input, output, message["env"]):
            answer = self._call(message["target"], message["args"], message["cwd"])
        if os.getpid() != self._pid:
            os._exit(FAILED)  # The function forked, and the child returned from it as well.
        _reap()
        self._note_new_modules(began)
        sent, self._libraries_sent = self._libraries_sent, self._libraries
        if "error" in answer:
            # Lone surrogates cannot be encoded.
            answer["error"] = answer["error"].encode(errors="replace").decode()
        return {**answer, "worn": self._worn(), "libraries": self._libraries if self._libraries is not sent else None}

    @contextlib.contextmanager
    def _as_its_own(self, standard_input: int, output: int, environment: dict[str, str]) -> Iterator[None]:
        self._pipe = _number(output)
        os.dup2(standard_input, 0)
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.close(standard_input)
        os.close(output)
        os.environ.update(environment)
        sys.stdin = io.TextIOWrapper(io.BufferedReader(io.FileIO(0, closefd=False)), "utf-8", "surrogateescape")
        # The same objects each time: loaded code keeps them, as a logger does.
        self._output = self._output if not self._output.closed else _writer(1)
        self._errors = self._errors if not self._errors.closed else _writer(2)
        sys.stdout, sys.stderr = self._output, self._errors
        signal.signal(signal.SIGTERM, self._terminate)
        try:
            yield
        finally:
            for stream in {sys.stdout, sys.stderr, self._output, self._errors}:
                with contextlib.suppress(Exception):
                    stream.flush()
            _libc.fflush(None)
            for descriptor in (0, 1, 2):
                os.dup2(self._nothing, descriptor)
            # An alarm that a call has set must not reach the next one.
            signal.setitimer(signal.ITIMER_REAL, 0)
            self._restore_environment()

    def _restore_environment(self) -> None:
        for name in [name for name in os.environ if name not in self._environment]:
            del os.environ[name]
        for name, value in self._environment.items():
            if os.environ.get(name) != value:
                os.environ[name] = value

    def _call(self, target: str, arguments: list[str], tree: str) -> dict[str, Any]:
        try:
            self._is_calling = True
            os.chdir(tree)
            self._set_tree(tree)
            value = _found(target)(*map(_argument, arguments))
            if hasattr(value, "__await__"):
                value = _awaited(value)
            self._is_calling = False
            return _result(target, value)
        except SystemExit as error:
            return _exit(error.code)
        except BaseException as error:
            _show(error)
            return {"error": _last_line(error), "code": FAILED}
        finally:
            self._is_calling = False

    def _terminate(self, *_: object) -> None:
        if self._is_calling:
            raise SystemExit(TERMINATED)

    def _set_tree(self, tree: str) -> None:
        self._tree = tree
        if sys.path[:1] != [tree]:
            sys.path[:] = [tree, *(path for path in sys.path if path != tree)]
        # Files may have been added since its folders were last listed.
        for path in [path for path in sys.path_importer_cache if f"{path}/".startswith(f"{tree}/")]:
            del sys.path_importer_cache[path]

    # After a call.

    def _worn(self) -> str:
        """Return why this process must not be used again, or an empty string if it can be."""
        if _count():
            return "threads are left"
        if self._memory_now() - self._memory > GROWTH_BYTES_MAX:
            return "it has grown"
        free = self._lowest_free()
        if free == self._free:
            return ""
        self._free = free
        return self._worn_descriptors()

    def _worn_descriptors(self) -> str:
        """Return why open descriptors wear this process. Writes to an output left open would reach the next call's."""
        numbers = [int(name) for name in _listdir(DESCRIPTORS_OPEN)]
        if any(_number(descriptor) == self._pipe for descriptor in numbers):
            return "its output is held open"
        if len(numbers) - self._descriptors_first > GROWTH_DESCRIPTORS_MAX:
            return "descriptors are left"
        return ""

    def _lowest_free(self) -> int:
        """Return the lowest free descriptor. If it is unchanged, a call has most likely left no descriptor open."""
        free = _dup(0)
        _close(free)
        return free

    def _memory_now(self) -> int:
        try:
            return int(_pread(self._statm, READ_BYTES, 0).split()[1]) * PAGE_BYTES
        except (OSError, ValueError, IndexError):
            return GROWTH_BYTES_MAX + self._memory + 1  # A call has closed or replaced the descriptor.

    def _is_stale(self, tree: str) -> bool:
        if self._tree and tree != self._tree:
            return True
        return any(_identity(path) != identity for path, identity in self._files.items())

    def _note_new_modules(self, began: int) -> None:
        """Note newly imported modules: files of the tree, which may change, and libraries for the next interpreter."""
        if len(sys.modules) == len(self._known):
            return
        new = set(sys.modules) - self._known
        self._known |= new
        for name in new:
            path = getattr(sys.modules.get(name), "__dict__", {}).get("__file__")
            if isinstance(path, str) and path.startswith(f"{self._tree}/"):
                identity = _identity(path)
                # The call itself may have changed it after it was read.
                self._files[path] = identity if identity and identity[0] < began else CHANGED
            elif "." not in name and not name.startswith("_") and len(self._libraries) < LIBRARIES_MAX:
                self._libraries = [*self._libraries, name]


def _length(arrived: bytearray) -> int:
    return int.from_bytes(arrived[:LENGTH_BYTES], "big")


def _writer(descriptor: int) -> io.TextIOWrapper:
    stream = io.BufferedWriter(io.FileIO(descriptor, "wb", closefd=False))
    return io.TextIOWrapper(stream, "utf-8", "backslashreplace", line_buffering=True)


def _found(target: str) -> Callable[..., Any]:
    module, _, names = target.partition(":")
    found: Any = importlib.import_module(module)
    for name in names.split("."):
        found = getattr(found, name)
    if not callable(found):
        raise TypeError(f"{target} is {type(found).__name__}, which cannot be called")
    return found  # type: ignore[no-any-return]


def _argument(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _awaited(value: Any) -> Any:
    import asyncio

    async def wait() -> Any:
        return await value

    return asyncio.run(wait())


def _result(target: str, value: Any) -> dict[str, Any]:
    try:
        text = json.dumps(value, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        return {"error": f"what {target} returns is not JSON: {error}"[:ERROR_CHARACTERS_MAX], "code": FAILED}
    if len(text) > RESULT_BYTES_MAX:
        return {"error": f"what {target} returns has {len(text)} bytes; at most {RESULT_BYTES_MAX}", "code": FAILED}
    return {"result": text, "code": 0}


def _exit(code: object) -> dict[str, Any]:
    if code is None or code == 0:
        return {"result": "null", "code": 0}
    if isinstance(code, int):
        return {"error": f"SystemExit: {code}", "code": code & 0xFF or FAILED}
    sys.stderr.write(f"{code}\n")
    return {"error": str(code)[:ERROR_CHARACTERS_MAX], "code": FAILED}


def _show(error: BaseException) -> None:
    """Print a traceback without the frames of this program."""
    import traceback

    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
        trace = trace.tb_next
    with contextlib.suppress(Exception):
        traceback.print_exception(type(error), error, trace)


def _last_line(error: BaseException) -> str:
    import traceback

    name = type(error).__name__
    try:
        lines = traceback.format_exception_only(error)
    except Exception:
        return name
    # Notes may follow it; the place of a syntax error comes before it.
    found = next((line for line in lines if line.partition(":")[0].strip().rpartition(".")[2] == name), name)
    return found.strip()[:ERROR_CHARACTERS_MAX]


def _reap() -> None:
    with contextlib.suppress(ChildProcessError):
        while _waitpid(-1, os.WNOHANG)[0]:
            pass


def _identity(path: str) -> tuple[int, ...]:
    try:
        found = _stat(path)
    except OSError:
        return ()
    return found.st_mtime_ns, found.st_size, found.st_ino


def _number(descriptor: int) -> tuple[int, int]:
    """Return the device and inode of an open file."""
    try:
        found = _fstat(descriptor)
    except OSError:
        return 0, 0
    return found.st_dev, found.st_ino


def main() -> None:
    # No bytecode caches in the tree: it is the tenant's.
    sys.dont_write_bytecode = True
    # The kernel reparents orphans of calls to this process.
    _libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    control = socket.socket(fileno=os.dup(0))
    # While nothing is called, SIGTERM comes too late for a call.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        InterpreterProgram(control).serve()
    except OSError:
        os._exit(NO_RUNNER)
    # Handlers that calls registered for the exit must not run.
    os._exit(0)
