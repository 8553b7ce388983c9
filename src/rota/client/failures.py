"""Why no answer came. All are OSErrors, and say where the client tried and what to do.

What matters to a caller who writes is whether the request may have been carried out: after `NotConnected` it was not;
after any other it may have been.
"""

from __future__ import annotations


class ConnectionFailed(OSError):  # noqa: N818
    """No answer came."""


class NotConnected(ConnectionFailed):
    """Nothing was sent."""


class Unreachable(NotConnected):
    """The connection could not be opened; a little later it may be."""


class NoServer(NotConnected):
    """Nobody listens where the local server would."""


class CredentialsFailed(NotConnected):
    """There is nothing to show to the server: a token file cannot be read, a plugin failed."""


class TooManyStreams(NotConnected):
    """As many streams are open as this client may have."""


class ConnectionCut(ConnectionFailed):
    """The connection was lost after the request was sent and before its answer was complete."""


class TimedOut(ConnectionFailed, TimeoutError):  # noqa: N818
    """The server took the request, and then said nothing for too long."""


class BadAnswer(ConnectionFailed):
    """What came is not HTTP, or larger than the client takes."""
