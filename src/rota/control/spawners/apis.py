"""The list of APIs that a server may dial. It dials a tenant's URL only if that is on the list."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from typing import NamedTuple
from urllib.parse import urlsplit

from rota.client.heads import authority

API_NOT_ALLOWED = "ApiNotAllowed"
"""The reason of a spawner whose API may not be dialled."""
DEFAULT_API = "https://api.github.com"
PORTS = {"https": 443, "http": 80}


class Api(NamedTuple):
    scheme: str
    host: str
    port: int
    path: str
    """The prefix of all its paths; empty for the root."""

    @property
    def origin(self) -> tuple[str, str, int]:
        return (self.scheme, self.host, self.port)

    @property
    def authority(self) -> str:
        return authority(self.host, 0 if self.port == PORTS[self.scheme] else self.port)

    @property
    def url(self) -> str:
        return f"{self.scheme}://{self.authority}{self.path}"


def api_of(url: str) -> Api:
    """Parse the URL of an API. Raises ValueError."""
    parts = urlsplit(url)
    problem = f"{url!r} is no address of an API: it has the form https://HOST[:PORT][/PATH]"
    try:
        host, port = parts.hostname or "", parts.port
    except ValueError:
        raise ValueError(problem) from None
    path = parts.path.rstrip("/")
    is_plain = url.isascii() and url.isprintable() and " " not in url and ".." not in path.split("/")
    if parts.scheme not in PORTS or not host or "@" in parts.netloc or parts.query or parts.fragment or not is_plain:
        raise ValueError(problem)
    return Api(parts.scheme, host, port or PORTS[parts.scheme], path)


class Apis:
    """The APIs that may be dialled: the default one, and those with these URLs."""

    def __init__(self, urls: Iterable[str] = ()) -> None:
        self._known = dict.fromkeys(map(api_of, (DEFAULT_API, *urls)))

    def find(self, url: str) -> Api | None:
        """Return the API of a URL, if it may be dialled."""
        try:
            api = api_of(url)
        except ValueError:
            return None
        return api if api in self._known else None

    def way_to_allow(self, url: str) -> str:
        """Return the command that adds this API to the list."""
        try:
            wanted = api_of(url)
        except ValueError as error:
            return f"correct it: {error}"
        # The options of a restart replace the former ones, so the command has all of them.
        named = [api.url for api in (*self._known, wanted) if api.url != DEFAULT_API]
        return f"allow it with `rota restart {' '.join(f'--allow-api {shlex.quote(one)}' for one in named)}`"

    def refusal(self, url: str, of: str = "this server's list of APIs") -> str | None:
        """Say why a URL may not be dialled, and what to do; None: it may be. `of` names the list in the message."""
        if self.find(url) is not None:
            return None
        return f"{url} is not on {of}: {self.way_to_allow(url)}, or use one of: {self}"

    def __str__(self) -> str:
        return ", ".join(api.url for api in self._known)
