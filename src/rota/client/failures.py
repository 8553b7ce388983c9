"""Connection errors. All are OSErrors, and name the server and what to do.

After `NotConnected` a request was certainly not carried out; after any other of them it may have been.
"""

from __future__ import annotations


class ConnectionFailed(OSError):  # noqa: N818
    """No answer came."""


class NotConnected(ConnectionFailed):
    """Nothing was sent."""


class Unreachable(NotConnected):
    """The connection could not be opened. A retry may succeed."""


class NoServer(NotConnected):
    """No local server is running."""


class CredentialsFailed(NotConnected):
    """There is no credential: a token file cannot be read, or a plugin failed."""


class TooManyStreams(NotConnected):
    """The client has as many open streams as its limit allows."""


class ConnectionCut(ConnectionFailed):
    """The connection was lost after the request was sent and before its answer was complete."""


class TimedOut(ConnectionFailed, TimeoutError):  # noqa: N818
    """The server took the request, and was silent for too long."""


class BadAnswer(ConnectionFailed):
    """The answer is not HTTP, or larger than the client accepts."""
