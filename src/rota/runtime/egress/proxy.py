"""The proxy itself: takes connections of one sandbox, and dials what its list allows.

The standard library alone: it is run as a program of its own, and is up in a few milliseconds.
"""

from __future__ import annotations

import contextlib
import ipaddress
import json
import os
import select
import socket
import threading
import time
from typing import Any, NamedTuple

CONNECTIONS_MAX = 128
"""At once. More of them wait until one has ended."""
HEAD_BYTES_MAX = 16 * 1024
HEAD_SECONDS_MAX = 15.0
CONNECT_SECONDS_MAX = 15.0
IDLE_SECONDS_MAX = 900.0
"""For how long a connection may be silent in both directions."""
READ_BYTES = 64 * 1024
STACK_BYTES = 256 * 1024
ADDRESSES_MAX = 8
"""Addresses of one name that are tried."""
REFUSALS_KEPT = 16
REFUSALS_PAUSE_SECONDS = 1.0
SHOWN_MAX = 253
ENDED = b"\r\n\r\n"
CONTROL_MAX, DELETE = 0x20, 0x7F
UNREACHABLE = (
    b"HTTP/1.1 502 Bad Gateway\r\nContent-Type: text/plain\r\nContent-Length: 53\r\nConnection: close\r\n\r\n"
    b"it does not answer, or is not on the list for egress\n"
)
"""For all that does not work, so that nobody learns from it what is there."""
BAD_REQUEST = b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
CONNECTED = b"HTTP/1.1 200 Connection established\r\n\r\n"
HOP_BY_HOP = (b"connection", b"keep-alive", b"host", b"te", b"upgrade")
"""Headers that are for a proxy, or that it writes itself; and all that begin with proxy-."""


class BadRequest(Exception):  # noqa: N818
    """Not a request that a proxy understands."""


class Unreachable(Exception):  # noqa: N818
    """Refused, or not there. Why is for the owner, and not for who asked."""


class Asked(NamedTuple):
    """What is asked for: a tunnel, or a request, which is sent on."""

    host: str
    port: int
    sent: bytes | None


class Refusals:
    """What was refused, in a file that is written anew, at most once a second."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._lock = threading.Lock()
        self._total = 0
        self._kept: dict[tuple[str, int, str], int] = {}
        self._is_written = True
        self._written = 0.0
        # A sandbox that is started again goes on where the last one of its folder has ended.
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            before = json.loads(os.pread(descriptor, READ_BYTES, 0))
            self._kept = {(one["host"], one["port"], one["why"]): one["count"] for one in before["last"]}
            self._total = before["total"]

    def add(self, host: str, port: int, why: str) -> None:
        shown = "".join(each if each.isascii() and each.isprintable() else "?" for each in host[:SHOWN_MAX])
        with self._lock:
            key = shown, port, why
            # The newest at the end; of many, the last ones are kept.
            self._kept[key] = self._kept.pop(key, 0) + 1
            while len(self._kept) > REFUSALS_KEPT:
                del self._kept[next(iter(self._kept))]
            self._total += 1
            self._is_written = False
        # Before who asked is answered, so that it is there when they have ended; but of many, once a second.
        if time.monotonic() - self._written > REFUSALS_PAUSE_SECONDS:
            self.write()

    def write(self) -> None:
        with self._lock:
            if self._is_written:
                return
            self._written = time.monotonic()
            last = [{"host": host, "port": port, "why": why, "count": n} for (host, port, why), n in self._kept.items()]
            content = json.dumps({"total": self._total, "last": last}).encode()
            self._is_written = True
        try:
            # Whoever reads it meanwhile finds no JSON, and reads it again.
            os.ftruncate(self._descriptor, 0)
            os.pwrite(self._descriptor, content, 0)
        except OSError:
            pass  # A full disk is no reason to end.


class Proxy:
    def __init__(self, egress: Any, targets: list[Any], refused: int) -> None:
        """`egress`: the module that knows which targets allow what."""
        self._egress = egress
        self._targets = targets
        self._refusals = Refusals(refused)
        self._lock = threading.Lock()
        self._count = 0
        self._freed, self._freed_write = os.pipe()
        os.set_blocking(self._freed, False)
        os.set_blocking(self._freed_write, False)

    def serve(self, listener: socket.socket, until: int) -> None:
        """Take connections until a descriptor can be read."""
        threading.stack_size(STACK_BYTES)
        listener.setblocking(False)
        while True:
            ready = select.poll()
            ready.register(until, select.POLLIN)
            ready.register(self._freed, select.POLLIN)
            if self._count < CONNECTIONS_MAX:
                ready.register(listener, select.POLLIN)
            found = {descriptor for descriptor, _ in ready.poll(REFUSALS_PAUSE_SECONDS * 1000)}
            self._refusals.write()
            if until in found:
                return
            if self._freed in found:
                os.read(self._freed, READ_BYTES)
            if listener.fileno() in found:
                self._accept(listener)

    def _accept(self, listener: socket.socket) -> None:
        try:
            client, _ = listener.accept()
        except OSError:
            time.sleep(0.01)  # No descriptor is free, or the client has left.
            return
        with self._lock:
            self._count += 1
        try:
            threading.Thread(target=self._attend, args=(client,), daemon=True).start()
        except RuntimeError:  # The instance has as many threads as it may have.
            client.close()
            self._left()

    def _left(self) -> None:
        with self._lock:
            self._count -= 1
        with contextlib.suppress(BlockingIOError):
            os.write(self._freed_write, b"x")

    def _attend(self, client: socket.socket) -> None:
        try:
            with client:
                self._answer(client)
        except OSError:
            pass  # One of both has gone.
        finally:
            self._left()

    def _answer(self, client: socket.socket) -> None:
        try:
            head, rest = _head(client)
            asked = parsed(head)
        except BadRequest:
            client.sendall(BAD_REQUEST)
            return
        try:
            server = self._dialled(asked.host, asked.port)
        except Exception as error:
            # Whatever it is: another answer would tell something.
            why = str(error) if isinstance(error, Unreachable) else f"the proxy has failed: {error!r}"
            self._refusals.add(asked.host, asked.port, why)
            client.sendall(UNREACHABLE)
            return
        with server:
            if asked.sent is None:
                client.sendall(CONNECTED)
            else:
                server.sendall(asked.sent)
            if rest:
                server.sendall(rest)
            relay(client, server)

    def _dialled(self, host: str, port: int) -> socket.socket:
        """A connection to an address that was checked. The name is not looked up again."""
        deadline = time.monotonic() + CONNECT_SECONDS_MAX
        why = "it has no address that is allowed"
        for address in self._addresses(host, port):
            try:
                family = socket.AF_INET6 if address.version == 6 else socket.AF_INET
                server = socket.socket(family, socket.SOCK_STREAM)
                try:
                    server.settimeout(max(0.1, deadline - time.monotonic()))
                    server.connect((str(address), port))
                except BaseException:
                    server.close()
                    raise
                return server
            except OSError as error:
                why = f"it cannot be reached: {error.strerror or 'no answer in time'}"
        raise Unreachable(why)

    def _addresses(self, host: str, port: int) -> list[Any]:
        """The addresses that may be dialled for a host. Raises Unreachable for one that is not on the list."""
        try:
            literal = ipaddress.ip_address(host)
        except ValueError:
            literal = None
        if literal is not None:
            if getattr(literal, "scope_id", None) or not self._egress.allows(self._targets, literal, port, named=False):
                raise Unreachable(f"it is not on the list{self._kind(literal)}")
            return [literal]
        name = self._egress.normal(host)
        # A resolver may stop at a character that no name has, and take what is before it.
        if not self._egress.is_name(name) or not self._egress.is_named(self._targets, name, port):
            raise Unreachable("it is not on the list")
        try:
            # As bytes: for text, Python loads a module, which this user may not be able to read.
            found = socket.getaddrinfo(name.encode("ascii"), port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError):
            raise Unreachable("its name cannot be resolved") from None
        addresses = [ipaddress.ip_address(str(one[4][0]).partition("%")[0]) for one in found[:ADDRESSES_MAX]]
        allowed = [one for one in addresses if self._egress.allows(self._targets, one, port, named=True)]
        if not allowed:
            raise Unreachable(f"its name leads to {addresses[0]}{self._kind(addresses[0])}")
        return allowed

    def _kind(self, address: Any) -> str:
        kind = self._egress.special(address)
        return f", and of the {kind[0]} addresses, which only a cidr of such ones allows" if kind is not None else ""


def _head(client: socket.socket) -> tuple[bytes, bytes]:
    """The head of a request, and what has come after it."""
    deadline = time.monotonic() + HEAD_SECONDS_MAX
    arrived = b""
    while ENDED not in arrived:
        left = deadline - time.monotonic()
        if left <= 0 or len(arrived) > HEAD_BYTES_MAX:
            raise BadRequest
        client.settimeout(left)
        data = client.recv(READ_BYTES)
        if not data:
            raise BadRequest
        arrived += data
    head, _, rest = arrived.partition(ENDED)
    if len(head) > HEAD_BYTES_MAX:
        raise BadRequest
    return head, rest


def parsed(head: bytes) -> Asked:
    """Read the head of a request to a proxy."""
    first, *headers = head.split(b"\r\n")
    words = first.split(b" ")
    if len(words) != 3 or words[2] not in (b"HTTP/1.0", b"HTTP/1.1"):
        raise BadRequest
    method, where, version = words
    if any(each <= CONTROL_MAX or each == DELETE for each in where):
        raise BadRequest
    if method == b"CONNECT":
        host, port = _authority(where, None)
        return Asked(host, port, None)
    if not where[:7].lower() == b"http://":
        raise BadRequest
    authority, slash, path = where[7:].partition(b"/")
    authority, question, query = authority.partition(b"?")
    if question:
        path = b"?" + query + slash + path
    host, port = _authority(authority.rpartition(b"@")[2], 80)
    kept = []
    for header in headers:
        name, colon, _ = header.partition(b":")
        if not colon or name != name.strip() or b"\n" in header or b"\r" in header:
            raise BadRequest
        if name.lower() not in HOP_BY_HOP and not name.lower().startswith(b"proxy-"):
            kept.append(header)
    lines = [b"%s /%s %s" % (method, path, version), b"Host: " + authority.rpartition(b"@")[2], b"Connection: close"]
    return Asked(host, port, b"\r\n".join([*lines, *kept]) + ENDED)


def _authority(written: bytes, default: int | None) -> tuple[str, int]:
    try:
        text = written.decode("ascii")
    except UnicodeDecodeError:
        raise BadRequest from None
    if text.startswith("["):
        host, closed, rest = text[1:].partition("]")
        port = rest.removeprefix(":") if closed and (not rest or rest.startswith(":")) else "?"
    else:
        host, _, port = text.partition(":")
    number = default if not port else int(port) if port.isdigit() and len(port) <= 5 else None
    if not host or number is None or not 0 < number < 1 << 16:
        raise BadRequest
    return host, number


class _Direction:
    """What one side says to the other: read when the last of it has been passed on."""

    def __init__(self, source: socket.socket, target: socket.socket) -> None:
        self.source = source
        self.target = target
        self.waiting = b""
        self.is_over = False

    def read(self) -> None:
        self.waiting = self.source.recv(READ_BYTES)
        if not self.waiting:
            self.is_over = True
            self.target.shutdown(socket.SHUT_WR)

    def write(self) -> None:
        self.waiting = self.waiting[self.target.send(self.waiting) :]


def relay(one: socket.socket, other: socket.socket) -> None:
    """Pass on what each says to the other, until both have ended or neither says anything for long.

    Neither waits for the other: who reads slowly holds up only what is meant for them.
    """
    one.setblocking(False)
    other.setblocking(False)
    directions = [_Direction(one, other), _Direction(other, one)]
    while not all(each.is_over for each in directions):
        wanted = {one.fileno(): 0, other.fileno(): 0}
        for each in directions:
            if each.waiting:
                wanted[each.target.fileno()] |= select.POLLOUT
            elif not each.is_over:
                wanted[each.source.fileno()] |= select.POLLIN
        ready = select.poll()
        for descriptor, events in wanted.items():
            # Without one of both, the end of a connection would be told again and again.
            if events:
                ready.register(descriptor, events)
        found = dict(ready.poll(IDLE_SECONDS_MAX * 1000))
        if not found:
            return
        for each in directions:
            with contextlib.suppress(BlockingIOError):
                if each.waiting and found.get(each.target.fileno(), 0) & ~select.POLLIN:
                    each.write()
                elif not each.waiting and not each.is_over and found.get(each.source.fileno(), 0) & ~select.POLLOUT:
                    each.read()
