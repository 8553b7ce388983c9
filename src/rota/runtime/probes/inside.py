"""Probes a port of the instance from inside: this file runs there, as the text of a `python -c`.

    python -I -S -c TEXT SECONDS PORT [PATH]

Only cheap parts of the standard library, and nothing of Rota: it runs for every probe of an instance with a network
namespace of its own. Its exit code is its result, since nothing else of it is read.
"""

import socket
import sys
import time

HOST = "127.0.0.1"
HEAD_BYTES_MAX = 8_192
STATUS_DIGITS = 3
REFUSED, SILENT, NO_HTTP, CLOSED, UNREACHABLE = 41, 42, 43, 44, 45
WRONG_STATUS = 50
"""A wrong HTTP status gives this exit code plus the first digit of the status."""


def request(port: int, path: str) -> bytes:
    return (
        f"GET {path} HTTP/1.1\r\nHost: {HOST}:{port}\r\nUser-Agent: rota-probe\r\nAccept: */*\r\n"
        "Connection: close\r\n\r\n"
    ).encode("ascii")


def status_of(head: bytes) -> int | None:
    """Return the status of an HTTP answer from its beginning; None if more is needed. Raises ValueError otherwise."""
    while True:
        line, ended, _ = head.partition(b"\n")
        version, _, rest = line.partition(b" ")
        if not ended:
            if not (b"HTTP/1." + head[len(b"HTTP/1.") :]).startswith(head):
                raise ValueError("no HTTP")
            return None
        digits = rest.split(None, 1)[0] if rest.split() else b""
        if not version.startswith(b"HTTP/1.") or len(digits) != STATUS_DIGITS or not digits.isdigit():
            raise ValueError("no HTTP")
        status = int(digits)
        if status // 100 != 1 or status == 101:
            return status
        # An informational answer: the final one follows.
        _, ended, head = head.partition(b"\r\n\r\n")
        if not ended:
            return None


def passes(status: int) -> bool:
    return 200 <= status <= 399


def connects_to_itself(opened: socket.socket, port: int) -> bool:
    """Report whether a connection leads to itself: the kernel may give it that very port if nothing listens there."""
    own: tuple[str, int] = opened.getsockname()
    return own == (HOST, port)


def main() -> None:
    until, port = time.monotonic() + float(sys.argv[1]), int(sys.argv[2])
    try:
        with socket.create_connection((HOST, port), timeout=_left(until)) as opened:
            if connects_to_itself(opened, port):
                sys.exit(REFUSED)
            if len(sys.argv) == 3:
                sys.exit(0)
            opened.sendall(request(port, sys.argv[3]))
            sys.exit(_answer(opened, until))
    except TimeoutError:
        sys.exit(SILENT)
    except ConnectionRefusedError:
        sys.exit(REFUSED)
    except ConnectionError:
        sys.exit(CLOSED)
    except ValueError:
        sys.exit(NO_HTTP)
    except OSError:
        sys.exit(UNREACHABLE)


def _answer(opened: socket.socket, until: float) -> int:
    head = b""
    while len(head) < HEAD_BYTES_MAX:
        opened.settimeout(_left(until))
        part = opened.recv(HEAD_BYTES_MAX - len(head))
        if not part:
            return CLOSED
        head += part
        status = status_of(head)
        if status is not None:
            return 0 if passes(status) else WRONG_STATUS + status // 100
    return NO_HTTP


def _left(until: float) -> float:
    left = until - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left


if __name__ == "__main__":
    main()
