"""The proxy of one sandbox: accepts its connections, and dials what the list of targets allows.

Standard library only: it is loaded by `program`, and is up in a few milliseconds.
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
"""The most connections at once. Further ones wait until one has ended."""
HEAD_BYTES_MAX = 16 * 1024
HEAD_SECONDS_MAX = 15.0
CONNECT_SECONDS_MAX = 15.0
IDLE_SECONDS_MAX = 900.0
"""The longest time for which a connection may be silent in both directions."""
READ_BYTES = 64 * 1024
STACK_BYTES = 256 * 1024
ADDRESSES_MAX = 8
"""The most addresses of a name that are tried."""
REFUSALS_KEPT = 16
REFUSALS_PAUSE_SECONDS = 1.0
SHOWN_MAX = 253
ENDED = b"\r\n\r\n"
CONTROL_MAX, DELETE = 0x20, 0x7F
UNREACHABLE = (
    b"HTTP/1.1 502 Bad Gateway\r\nContent-Type: text/plain\r\nContent-Length: 53\r\nConnection: close\r\n\r\n"
    b"it does not answer, or is not on the list for egress\n"
)
"""The answer to every failure, so that a tenant does not learn from it which servers exist."""
BAD_REQUEST = b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
CONNECTED = b"HTTP/1.1 200 Connection established\r\n\r\n"
HOP_BY_HOP = (b"connection", b"keep-alive", b"host", b"te", b"upgrade")
"""Headers that are not sent on, beside all that begin with proxy-."""


class BadRequest(Exception):  # noqa: N818
    """The request is not one that a proxy serves."""


class Unreachable(Exception):  # noqa: N818
    """The host is refused, or does not answer. The message is for the owner, not for the tenant."""


class ProxyRequest(NamedTuple):
    """A request to the proxy: for a tunnel, or one that is sent on."""

    host: str
    port: int
    sent: bytes | None
    """The head to send on, or None for a tunnel."""


class RefusalLog:
    """The refusals of a proxy, in a file that is rewritten at most once a second."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._lock = threading.Lock()
        self._total = 0
        self._kept: dict[tuple[str, int, str], int] = {}
        self._is_written = True
        self._written = 0.0
        # A sandbox that is started again in the same folder continues the file.
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            before = json.loads(os.pread(descriptor, READ_BYTES, 0))
            self._kept = {(one["host"], one["port"], one["why"]): one["count"] for one in before["last"]}
            self._total = before["total"]

    def add(self, host: str, port: int, why: str) -> None:
        shown = "".join(each if each.isascii() and each.isprintable() else "?" for each in host[:SHOWN_MAX])
        with self._lock:
            key = shown, port, why
            # The newest at the end: the oldest are dropped.
            self._kept[key] = self._kept.pop(key, 0) + 1
            while len(self._kept) > REFUSALS_KEPT:
                del self._kept[next(iter(self._kept))]
            self._total += 1
            self._is_written = False
        # Written before the answer, so that it is there when the tenant has ended; of many, once a second.
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
            # A reader may find half of it meanwhile, which is no JSON, and reads it again.
            os.ftruncate(self._descriptor, 0)
            os.pwrite(self._descriptor, content, 0)
        except OSError:
            pass  # The proxy goes on while the disk is full.


class Proxy:
    def __init__(self, egress: Any, targets: list[Any], refused: int) -> None:
        """`egress`: the module `rota.api.egress`, which decides what targets allow."""
        self._egress = egress
        self._targets = targets
        self._refusals = RefusalLog(refused)
        self._lock = threading.Lock()
        self._count = 0
        self._freed, self._freed_write = os.pipe()
        os.set_blocking(self._freed, False)
        os.set_blocking(self._freed_write, False)

    def serve(self, listener: socket.socket, until: int) -> None:
        """Accept connections until the descriptor `until` is readable."""
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
            time.sleep(0.01)  # No descriptor is free, or the client is gone.
            return
        with self._lock:
            self._count += 1
        try:
            threading.Thread(target=self._attend, args=(client,), daemon=True).start()
        except RuntimeError:  # The instance has reached its limit of threads.
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
            pass  # The client or the server is gone.
        finally:
            self._left()

    def _answer(self, client: socket.socket) -> None:
        try:
            head, rest = _head(client)
            request = parsed(head)
        except BadRequest:
            client.sendall(BAD_REQUEST)
            return
        try:
            server = self._dialled(request.host, request.port)
        except Exception as error:
            # The same answer to every error: another would reveal something.
            why = str(error) if isinstance(error, Unreachable) else f"the proxy has failed: {error!r}"
            self._refusals.add(request.host, request.port, why)
            client.sendall(UNREACHABLE)
            return
        with server:
            if request.sent is None:
                client.sendall(CONNECTED)
            else:
                server.sendall(request.sent)
            if rest:
                server.sendall(rest)
            relay(client, server)

    def _dialled(self, host: str, port: int) -> socket.socket:
        """Connect to an address that was checked. The name is not resolved again. Raises Unreachable."""
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
        """Return the addresses that may be dialled for a host. Raises Unreachable if there are none."""
        try:
            literal = ipaddress.ip_address(host)
        except ValueError:
            literal = None
        if literal is not None:
            if getattr(literal, "scope_id", None) or not self._egress.allows(self._targets, literal, port, named=False):
                raise Unreachable(f"it is not on the list{self._kind(literal)}")
            return [literal]
        name = self._egress.normal(host)
        # A resolver may stop at an invalid character, and resolve the part before it.
        if not self._egress.is_name(name) or not self._egress.is_named(self._targets, name, port):
            raise Unreachable("it is not on the list")
        try:
            # As bytes: for text, Python imports a module that this user may not be allowed to read.
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
    """Receive the head of a request. Return it, and the bytes that came after it."""
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


def parsed(head: bytes) -> ProxyRequest:
    """Parse the head of a request to a proxy. Raises BadRequest."""
    first, *headers = head.split(b"\r\n")
    words = first.split(b" ")
    if len(words) != 3 or words[2] not in (b"HTTP/1.0", b"HTTP/1.1"):
        raise BadRequest
    method, where, version = words
    if any(each <= CONTROL_MAX or each == DELETE for each in where):
        raise BadRequest
    if method == b"CONNECT":
        host, port = _authority(where, None)
        return ProxyRequest(host, port, None)
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
    return ProxyRequest(host, port, b"\r\n".join([*lines, *kept]) + ENDED)


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
    """One direction of a connection. It reads again only after everything that it read has been sent."""

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
    """Relay both directions until both have ended, or are silent for IDLE_SECONDS_MAX.

    A slow reader delays only the direction towards itself.
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
            # Registered without events, a closed connection would wake the loop again and again.
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
