"""Connects its standard input and output to a server, through the proxy: a ProxyCommand for ssh.

python -I -S connect.py PORT HOST HOST_PORT
"""

from __future__ import annotations

import os
import select
import socket
import sys

HEAD_BYTES_MAX = 4096
READ_BYTES = 64 * 1024
SECONDS_MAX = 60.0


def main() -> int:
    port, host, host_port = sys.argv[1:]
    proxy = socket.create_connection(("127.0.0.1", int(port)), SECONDS_MAX)
    where = f"[{host}]" if ":" in host else host
    proxy.sendall(f"CONNECT {where}:{host_port} HTTP/1.1\r\n\r\n".encode())
    head = b""
    while not head.endswith(b"\r\n\r\n") and len(head) < HEAD_BYTES_MAX:
        data = proxy.recv(1)
        if not data:
            break
        head += data
    if not head.startswith(b"HTTP/1.1 200 "):
        print(f"{host} port {host_port} does not answer, or is not on the server's list for egress", file=sys.stderr)
        return 1
    proxy.settimeout(None)
    ready = select.poll()
    ready.register(0, select.POLLIN)
    ready.register(proxy, select.POLLIN)
    while True:
        for descriptor, _ in ready.poll():
            if descriptor == 0:
                data = os.read(0, READ_BYTES)
                if data:
                    proxy.sendall(data)
                else:
                    ready.unregister(0)
                    proxy.shutdown(socket.SHUT_WR)
            else:
                data = proxy.recv(READ_BYTES)
                if not data:
                    return 0
                while data:
                    data = data[os.write(1, data) :]


if __name__ == "__main__":
    sys.exit(main())
