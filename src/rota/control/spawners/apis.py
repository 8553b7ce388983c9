"""The APIs that a server may dial. What a tenant writes is looked up here, and never dialled unless it is here."""

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
    """An API, as it is dialled."""

    scheme: str
    host: str
    port: int
    path: str
    """Below which everything of it is; empty for the root."""

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
    """An API by its URL. Raises ValueError for what is none."""
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
    """The APIs that may be dialled. Those that are named come beside the default one."""

    def __init__(self, urls: Iterable[str] = ()) -> None:
        self._known = dict.fromkeys(map(api_of, (DEFAULT_API, *urls)))

    def find(self, url: str) -> Api | None:
        """The API of this URL, if it may be dialled."""
        try:
            api = api_of(url)
        except ValueError:
            return None
        return api if api in self._known else None

    def way_to_allow(self, url: str) -> str:
        """What to do so that this API is on the list, beside those that are."""
        try:
            wanted = api_of(url)
        except ValueError as error:
            return f"correct it: {error}"
        # A restart takes the options that are given in the place of the last ones, so all of them are.
        named = [api.url for api in (*self._known, wanted) if api.url != DEFAULT_API]
        return f"allow it with `rota restart {' '.join(f'--allow-api {shlex.quote(one)}' for one in named)}`"

    def refusal(self, url: str, of: str = "this server's list of APIs") -> str | None:
        """Why this URL may not be dialled, and what to do; None if it may. `of` names the list."""
        if self.find(url) is not None:
            return None
        return f"{url} is not on {of}: {self.way_to_allow(url)}, or use one of: {self}"

    def __str__(self) -> str:
        return ", ".join(api.url for api in self._known)
