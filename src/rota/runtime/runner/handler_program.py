"""Answers the calls of one function, in a box: loads its module once, and calls its handler. Standard library only.

Its standard input is a socket: a message is a length in four bytes and JSON. The first message names the code to load,
all others are calls. The handler runs in this very process, so the runner trusts no message from here.

- A handler that is a coroutine function runs on one event loop, any other in `concurrency` threads.
- Output during a call, by print or a logger, goes to the log of that call; other output goes to the instance's log.
- A result has to be JSON; any other is reported as an error.
- The growth of memory is measured after each call. If it exceeds a bound, this is reported, and another process takes
  over.
"""

from __future__ import annotations

import _thread
import contextlib
import contextvars
import importlib
import io
import json
import os
import signal
import socket
import sys
import time
from _queue import SimpleQueue

# Not imported at run time: `typing` makes every start longer.
TYPE_CHECKING = False
if TYPE_CHECKING:
    import logging
    from asyncio import AbstractEventLoop, Task
    from collections.abc import Callable, Iterator
    from typing import Any

LENGTH_BYTES = 4
READ_BYTES = 65536
RESULT_BYTES_MAX = 4 * 1024 * 1024
ERROR_CHARACTERS_MAX = 2000
LINE_CHARACTERS_MAX = 8192
"""The longest incomplete line that is held back before it is sent to the log."""
GROWTH_BYTES_MAX = 256 * 1024 * 1024
"""The most bytes by which all calls together may make memory grow."""
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
NO_RUNNER = 70
RESPONSE_BODY = "body"
SAID_CHARACTERS_MAX = 16 * 1024
"""The most characters of output that are sent when loading fails, from its end."""
NAMES_SHOWN_MAX = 10

_pid = os.getpid()
_exit = os._exit
_current: contextvars.ContextVar[HandlerCall] = contextvars.ContextVar("call")


class Context:
    """The second argument of a handler: data of the call besides the event."""

    def __init__(self, call_id: str, function: str, seconds: float) -> None:
        self.call_id = call_id
        self.function = function
        self.deadline = time.time() + seconds
        """When the call is ended, in seconds since 1970."""
        self._ends = time.monotonic() + seconds

    def remaining_seconds(self) -> float:
        """Return the seconds that the call may still take."""
        return max(0.0, self._ends - time.monotonic())

    @property
    def logger(self) -> logging.Logger:
        """A logger that writes to the log of the call."""
        import logging

        _log_to_stderr(logging)
        return logging.getLogger(self.function)


class HandlerCall:
    """One call, until it is answered."""

    def __init__(self, id_: str, event: object, context: Context) -> None:
        self.id = id_
        self.event = event
        self.context = context
        self.is_over = False
        self.unsent: list[str] = []
        self.unsent_characters = 0


class CallOutput(io.TextIOBase):
    """A standard stream. Output of a call goes to the call's log, other output to the original stream."""

    encoding = "utf-8"
    errors = "backslashreplace"

    def __init__(self, program: HandlerProgram, descriptor: int) -> None:
        self._program = program
        self._own = io.TextIOWrapper(
            io.BufferedWriter(io.FileIO(descriptor, "wb", closefd=False)),
            "utf-8",
            "backslashreplace",
            line_buffering=True,
        )
        self.buffer = self._own.buffer

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._own.fileno()

    def isatty(self) -> bool:
        return False

    def write(self, text: str) -> int:
        call = _current.get(None)
        # A fork of this process must not write to its socket.
        if call is None or call.is_over or os.getpid() != _pid:
            self._program.note_said(text)
            return self._own.write(text)
        call.unsent.append(text)
        call.unsent_characters += len(text)
        if "\n" in text or call.unsent_characters > LINE_CHARACTERS_MAX:
            self._program.send_log(call)
        return len(text)

    def flush(self) -> None:
        call = _current.get(None)
        if call is None or call.is_over or os.getpid() != _pid:
            self._own.flush()
        else:
            self._program.send_log(call)


class HandlerProgram:
    """Calls the handler until its runner closes the connection."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._sending = _thread.allocate_lock()
        self._arrived = bytearray()
        self._handler: Callable[..., Any] = print
        self._function = ""
        self._queue: SimpleQueue[HandlerCall] = SimpleQueue()
        self._loop: AbstractEventLoop | None = None
        self._tasks: dict[str, Task[None]] = {}
        self._memory = 0
        self._said: str | None = ""
        """The output so far while the code is being loaded; None once it is loaded."""

    def serve(self) -> None:
        settings = self._receive()
        if settings is None:
            return
        sys.stdout, sys.stderr = CallOutput(self, 1), CallOutput(self, 2)
        try:
            self._handler = self._loaded(settings)
        except BaseException as error:
            _show(error)
            sys.stderr.flush()
            self._send_message({"failed": why_not_loaded(error, settings["code"]), "said": self._said})
            return
        self._said = None
        self._memory = _memory()
        self._send_message({"loaded": True, "cancels": self._loop is not None})
        _thread.start_new_thread(self._read, ())
        if self._loop is not None:
            self._loop.run_forever()
            return
        for _ in range(settings["concurrency"] - 1):
            _thread.start_new_thread(self._work, ())
        self._work()

    def _loaded(self, settings: dict[str, Any]) -> Callable[..., Any]:
        self._function = settings["function"]
        packages = [settings["packages"]] if settings["packages"] else []
        sys.path[:] = [settings["code"], *packages, *sys.path]
        found = _handler_of(settings["entrypoint"], settings["code"])
        if "logging" in sys.modules:
            _log_to_stderr(sys.modules["logging"])
        if _is_async(found):
            import asyncio

            self._loop = asyncio.new_event_loop()
        return found

    def note_said(self, text: str) -> None:
        if self._said is not None:
            self._said = (self._said + text)[-SAID_CHARACTERS_MAX:]

    # Messages.

    def _read(self) -> None:
        """Receive messages in a thread of its own, so that the end of the runner is noticed at once."""
        while (message := self._receive()) is not None:
            if self._loop is not None:
                # Messages that came together wake the loop once.
                self._loop.call_soon_threadsafe(self._take_all, [message, *self._arrived_messages()])
            elif "cancel" not in message:
                self._queue.put(self._call_of(message))
        _exit(NO_RUNNER)

    def _call_of(self, message: dict[str, Any]) -> HandlerCall:
        id_ = message["call"]
        return HandlerCall(id_, message["event"], Context(message.get("name", id_), self._function, message["seconds"]))

    def _take_all(self, messages: list[dict[str, Any]]) -> None:
        for message in messages:
            if "cancel" in message:
                self._cancel(message["cancel"])
            else:
                self._begin(self._call_of(message))

    def _receive(self) -> dict[str, Any] | None:
        arrived = self._arrived
        while len(arrived) < LENGTH_BYTES or len(arrived) < LENGTH_BYTES + _length(arrived):
            try:
                data = self._control.recv(READ_BYTES)
            except OSError:
                return None
            if not data:
                return None
            arrived += data
        return self._next()

    def _arrived_messages(self) -> Iterator[dict[str, Any]]:
        """Yield the messages that have arrived completely."""
        while len(self._arrived) >= LENGTH_BYTES and len(self._arrived) >= LENGTH_BYTES + _length(self._arrived):
            yield self._next()

    def _next(self) -> dict[str, Any]:
        arrived = self._arrived
        end = LENGTH_BYTES + _length(arrived)
        message: dict[str, Any] = json.loads(arrived[LENGTH_BYTES:end])
        del arrived[:end]
        return message

    # Calls in threads.

    def _work(self) -> None:
        while True:
            call = self._queue.get()
            contextvars.Context().run(self._one, call)

    def _one(self, call: HandlerCall) -> None:
        _current.set(call)
        try:
            value = self._handler(call.event, call.context)
            if hasattr(value, "__await__"):
                value = _awaited(value)
        except BaseException as error:
            self._failed(call, error)
        else:
            self._returned(call, value)

    # Calls on the loop.

    def _begin(self, call: HandlerCall) -> None:
        assert self._loop is not None
        context = contextvars.Context()
        context.run(_current.set, call)
        self._tasks[call.id] = self._loop.create_task(self._one_of_many(call), context=context)

    async def _one_of_many(self, call: HandlerCall) -> None:
        try:
            value = await self._handler(call.event, call.context)
        except BaseException as error:
            self._failed(call, error)
        else:
            self._returned(call, value)
        finally:
            self._tasks.pop(call.id, None)

    def _cancel(self, id_: str) -> None:
        task = self._tasks.get(id_)
        if task is not None:
            task.cancel()

    # Answers.

    def _returned(self, call: HandlerCall, value: Any) -> None:
        try:
            text = as_json(value)
        except Exception as error:
            refused = f"{type(error).__name__}: {error}"[:ERROR_CHARACTERS_MAX]
            sys.stderr.write(f"{refused}\n")
            self._answer(call, {"error": refused})
            return
        self._answer(call, {}, text)

    def _failed(self, call: HandlerCall, error: BaseException) -> None:
        _show(error)
        self._answer(call, {"error": last_line(error)})

    def _answer(self, call: HandlerCall, answer: dict[str, Any], result: bytes = b"") -> None:
        if os.getpid() != _pid:
            _exit(1)  # The handler forked, and the child returned from it as well.
        self.send_log(call)
        call.is_over = True
        answer["call"] = call.id
        if _memory() - self._memory > GROWTH_BYTES_MAX:
            answer["worn"] = True
        if result:
            # The result is encoded already.
            self._send(b'%b, "result": %b}' % (json.dumps(answer).encode()[:-1], result))
        else:
            self._send_message(answer)

    def send_log(self, call: HandlerCall) -> None:
        pieces, call.unsent, call.unsent_characters = call.unsent, [], 0
        # Lone surrogates cannot be encoded.
        text = "".join(pieces).encode(errors="backslashreplace").decode()
        if text:
            self._send_message({"call": call.id, "log": text})

    def _send_message(self, message: dict[str, Any]) -> None:
        self._send(json.dumps(message).encode())

    def _send(self, content: bytes) -> None:
        try:
            # Sent at once: the next handler might block the loop, or end this process.
            with self._sending:
                self._control.sendall(len(content).to_bytes(LENGTH_BYTES, "big") + content)
        except OSError:
            _exit(NO_RUNNER)


class NoHandler(Exception):  # noqa: N818 - says what is so
    """The entrypoint names no function that can be called."""


def _handler_of(entrypoint: str, code: str) -> Callable[..., Any]:
    module, _, name = entrypoint.partition(":")
    try:
        loaded = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise
        there = ", ".join(sorted(os.listdir(code))[:NAMES_SHOWN_MAX]) or "nothing"
        raise NoHandler(f"entrypoint {entrypoint}: there is no module {error.name}; the code has {there}") from None
    missing = object()
    found = getattr(loaded, name, missing)
    if found is missing:
        import difflib

        alike = difflib.get_close_matches(name, [one for one in vars(loaded) if not one.startswith("_")], 1)
        hint = f"; did you mean {module}:{alike[0]}?" if alike else ""
        raise NoHandler(f"entrypoint {entrypoint}: module {module} has no {name}{hint}")
    if not callable(found):
        raise NoHandler(f"entrypoint {entrypoint}: it is {type(found).__name__}, which cannot be called")
    return found


def as_json(value: Any) -> bytes:
    """Encode a result as JSON. Raises TypeError or ValueError with a message for the author of the handler."""
    if isinstance(value, dict) and isinstance(value.get(RESPONSE_BODY), bytes | bytearray | memoryview):
        import base64

        body = base64.b64encode(value[RESPONSE_BODY]).decode()
        value = {**value, RESPONSE_BODY: body, "isBase64Encoded": True}
    if isinstance(value, bytes | bytearray | memoryview):
        raise TypeError("the handler returned bytes; return text, or a response whose body is bytes")
    if hasattr(value, "__next__") or hasattr(value, "__anext__"):
        raise TypeError(f"the handler returned a {type(value).__name__}; return its values, as a list")
    try:
        text = json.dumps(value, allow_nan=False, ensure_ascii=False).encode()
    except RecursionError:
        raise ValueError("what the handler returned is nested too deeply") from None
    except (TypeError, ValueError) as error:
        raise TypeError(f"what the handler returned is not JSON: {error}") from None
    if len(text) > RESULT_BYTES_MAX:
        raise ValueError(f"what the handler returned has {len(text)} bytes; at most {RESULT_BYTES_MAX}")
    return text


def _is_async(handler: Any) -> bool:
    import inspect

    own = getattr(type(handler), "__call__", None)  # noqa: B004 - the method itself is needed
    return inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(own)


def _awaited(value: Any) -> Any:
    import asyncio

    async def wait() -> Any:
        return await value

    return asyncio.run(wait())


def _log_to_stderr(logging: Any) -> None:
    """Send loggers to stderr, unless the function has configured logging itself."""
    if not logging.root.handlers:
        logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(levelname)s %(name)s: %(message)s")


def _show(error: BaseException) -> None:
    """Print a traceback without the frames of this program."""
    import traceback

    trace = error.__traceback__
    while trace is not None and _is_machinery(trace.tb_frame.f_code.co_filename):
        trace = trace.tb_next
    with contextlib.suppress(Exception):
        traceback.print_exception(type(error), error, trace)


def _is_machinery(file: str) -> bool:
    return file in (__file__, importlib.__file__) or file.startswith("<frozen importlib")


def why_not_loaded(error: BaseException, code: str) -> str:
    """Return the last line of a traceback, with the file and line of the function's code where the error arose."""
    if isinstance(error, NoHandler):
        return str(error)[:ERROR_CHARACTERS_MAX]
    said, place = last_line(error), ""
    if isinstance(error, SyntaxError) and error.filename and error.filename.startswith(f"{code}/"):
        place = f"{error.filename}:{error.lineno}"
    else:
        trace = error.__traceback__
        while trace is not None:
            file = trace.tb_frame.f_code.co_filename
            if file.startswith(f"{code}/"):
                place = f"{file}:{trace.tb_lineno}"
            trace = trace.tb_next
    return f"{said} ({place[len(code) + 1 :]})" if place else said


def last_line(error: BaseException) -> str:
    """Return the type and message of an error in one line."""
    import traceback

    name = type(error).__name__
    try:
        lines = traceback.format_exception_only(error)
    except Exception:
        return name
    # Notes may follow it; the place of a syntax error comes before it.
    found = next((line for line in lines if line.partition(":")[0].strip().rpartition(".")[2] == name), name)
    return found.strip().encode(errors="replace").decode()[:ERROR_CHARACTERS_MAX]


def _length(arrived: bytearray) -> int:
    return int.from_bytes(arrived[:LENGTH_BYTES], "big")


def _memory() -> int:
    try:
        descriptor = os.open("/proc/self/statm", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return 0
    try:
        return int(os.read(descriptor, READ_BYTES).split()[1]) * PAGE_BYTES
    finally:
        os.close(descriptor)


def main() -> None:
    sys.dont_write_bytecode = True
    sys.argv = ["function"]
    control = socket.socket(fileno=os.dup(0))
    control.set_inheritable(False)
    nothing = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    os.dup2(nothing, 0)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    HandlerProgram(control).serve()
    _exit(0)
