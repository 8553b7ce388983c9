"""WebSockets (RFC 6455): messages both ways on one connection, as a client or as a server has it.

- Messages come whole, in order, once; `receive` tells of the end after the last of them.
- Nothing is kept without bound: who does not receive makes the other end wait, and so does who does not read.
- A silent end is asked for a sign of life, and given up when none comes. One that does not read for a while is not
  dead: it says so, since it cannot answer.
- Either end may close; whatever happens, the connection is gone a bounded time later.

Never: speaks extensions, sends anything again, connects anew by itself.
"""

from rota.client.websocket.connection import Closed, Heartbeat, WebSocket

__all__ = ["Closed", "Heartbeat", "WebSocket"]
