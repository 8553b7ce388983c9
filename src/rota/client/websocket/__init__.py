"""WebSockets (RFC 6455): messages both ways on one connection, for clients and servers.

- Messages arrive whole, in order, once; `receive` reports the end after the last of them.
- Every buffer is bounded: an end that does not receive makes the other wait, and so does one that does not read.
- A silent end gets a ping, and is given up if it does not answer. An end that pauses reading sends pings itself,
  because it cannot answer any.
- Either end may close; the connection is gone a bounded time later in any case.

Never: uses extensions, sends anything again, reconnects by itself.

Framing is Rota's own because each start of a server, and each command that runs another, loads it: that takes 6.5 ms,
and 36 to 45 ms with the part of `websockets` that does no I/O. A message of 64 bytes takes 2.9 µs there and back
(`websockets` 3.6, `wsproto` 11), one of 64 KiB that is masked 170 µs (8.6 and 119), which is 380 MB/s of input for a
command. It also bounds the fragments of a message.
"""

from rota.client.websocket.connection import Closed, Heartbeat, WebSocket

__all__ = ["Closed", "Heartbeat", "WebSocket"]
