"""WebSockets (RFC 6455): messages both ways on one connection, for clients and servers.

- Messages arrive whole, in order, once; `receive` reports the end after the last of them.
- Every buffer is bounded: an end that does not receive makes the other wait, and so does one that does not read.
- A silent end gets a ping, and is given up if it does not answer. An end that pauses reading sends pings itself,
  because it cannot answer any.
- Either end may close; the connection is gone a bounded time later in any case.

Never: uses extensions, sends anything again, reconnects by itself.
"""

from rota.client.websocket.connection import Closed, Heartbeat, WebSocket

__all__ = ["Closed", "Heartbeat", "WebSocket"]
