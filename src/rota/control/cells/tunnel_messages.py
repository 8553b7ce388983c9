"""The tunnel by which a hub reaches instances of a cell: its messages, and the requests that a cell accepts.

The hub never dials a cell. A cell keeps one connection to its hub, over which it gets requests; for each it opens
another one, over which it answers. The hub authorises the user. The cell lets its hub reach the instances that it runs
for the hub, and no others.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Literal

import msgspec

from rota.api import Cell, Instance, WorkloadDeployment
from rota.api.model import exact
from rota.control.cells.messages import Count, Name, Uid
from rota.control.cells.names import CELL_UID, Source, source_of
from rota.control.cells.receiving import is_copy
from rota.control.cells.reports import VERSION
from rota.control.inputs import reach
from rota.control.instances.names import controller_of
from rota.engine.objects import Objects, get
from rota.registry import ApiError
from rota.registry.errors import forbidden

PROTOCOL = "v1.reach.rota.dev"
"""The WebSocket subprotocol of both kinds of connections."""
HEADERS = frozenset(("accept", "content-type", "content-length", "sec-websocket-protocol"))
"""Headers of a request that are passed on to the cell, never credentials."""
ANSWER_HEADERS = frozenset(("Rota-Mode", "Rota-Length", "Retry-After"))
"""Headers of an answer that are passed on to the user."""
STATUSES = frozenset((101, 200, 400, 403, 404, 405, 409, 413, 429, 500, 501, 503, 507))
"""Status codes that a cell may answer with."""
MESSAGE_BYTES_MAX = 128 * 1024
"""The most bytes of one message. Larger pieces are divided."""
PIECE_BYTES = 64 * 1024
WAITING_BYTES_MAX = 256 * 1024
"""Bytes of one request that are buffered in each direction."""
FRESH_SECONDS = 30.0
"""A cell whose last report is younger than this is up, though its tunnel is not."""

What = Literal["logs", "exec", "files", "archive"]
MAY = frozenset(
    (
        ("GET", "logs"),
        ("GET", "exec"),
        *((method, what) for what in ("files", "archive") for method in ("GET", "PUT", "DELETE")),
    )
)
"""The requests that a cell accepts, as method and subresource."""

Line = Annotated[str, msgspec.Meta(max_length=1024, pattern=exact("^[ -~]*$"))]
"""A text that is valid as a header."""


class Hello(msgspec.Struct, rename="camel", tag="hello"):
    """The first message of a cell."""

    identity: Uid
    boot: Count
    version: Annotated[str, msgspec.Meta(max_length=253)] = ""


class Welcome(msgspec.Struct, rename="camel", tag="welcome"):
    """The hub's answer to `Hello`."""

    hub: Annotated[str, msgspec.Meta(max_length=64)]
    """The identity of the hub's store. A cell answers its own hub only."""


class Ask(msgspec.Struct, rename="camel", tag="ask"):
    """A request for one instance of the cell."""

    id: Annotated[str, msgspec.Meta(pattern=exact("^[-_A-Za-z0-9]{22}$"))]
    """The name of the connection for the answer."""
    method: Literal["GET", "PUT", "DELETE"]
    what: What
    namespace: Name
    name: Name
    uid: Uid
    """The instance's uid in the cell."""
    deployment: Uid
    """Its deployment's uid at the hub."""
    query: Annotated[str, msgspec.Meta(max_length=64 * 1024)] = ""
    headers: dict[str, str] = {}
    user: Annotated[str, msgspec.Meta(max_length=253)] = ""
    """The user's name at the hub."""
    admin: bool = False


class Refusal(msgspec.Struct, rename="camel", tag="refusal"):
    """The refusal of a request, sent over the first connection instead of an answer."""

    id: Annotated[str, msgspec.Meta(max_length=64)]
    code: int
    reason: Annotated[str, msgspec.Meta(max_length=64)]
    message: Annotated[str, msgspec.Meta(max_length=4096)]


class Continue(msgspec.Struct, tag="continue"):
    """A request for the body."""


class Head(msgspec.Struct, rename="camel", tag="head"):
    """The beginning of an answer. After 101 come the messages of a WebSocket; after any other the body, and `End`."""

    status: int
    content_type: Line = ""
    headers: dict[str, Line] = {}
    length: int = -1
    """Bytes of the whole body; -1: not known yet."""


class BodyEnd(msgspec.Struct, tag="end"):
    """The end of a body."""


FromCell = Continue | Head | BodyEnd
FromHub = Welcome | Ask
encode = msgspec.json.Encoder().encode


def said(message: msgspec.Struct) -> str:
    """Encode a message as text. Pieces of bodies are binary messages."""
    return encode(message).decode()


# At the hub.


def elsewhere(objects: Objects, namespace: str, name: str) -> Instance | None:
    """Return an instance that runs in a cell which reports to this hub; None: it does not exist, or runs elsewhere."""
    found = get(objects, Instance, name, namespace)
    return found if found is not None and is_copy(found) and found.spec.cell_name else None


def asked(
    instance: Instance, id_: str, method: str, what: str, query: str, headers: dict[str, str], user: str, *, admin: bool
) -> Ask:
    """Return the request for an instance of a cell. Raises ApiError for a request that cells do not accept."""
    owner = controller_of(instance)
    if (method, what) not in MAY or owner is None:
        raise ApiError(405, "MethodNotAllowed", "the server does not allow this method on the requested resource")
    meta = instance.metadata
    passed = {name: value for name, value in headers.items() if name in HEADERS}
    about = {"namespace": meta.namespace, "name": meta.name, "uid": meta.annotations[CELL_UID], "deployment": owner.uid}
    sent = {"id": id_, "method": method, "what": what, "query": query, "headers": passed, "user": user, "admin": admin}
    return msgspec.convert({**about, **sent, "type": "ask"}, Ask)


def absent(cell: Cell | None, name: str, version: str, now: float) -> ApiError:
    """Return the error for a request to a cell without a tunnel. `version` is this hub's."""
    where = f'cell "{name}" in {cell.spec.city_code}' if cell is not None else f'cell "{name}"'
    status = cell.status if cell is not None else None
    last = status.last_heartbeat_time if status is not None else None
    if cell is None:
        message = f"{where} does not exist here any more"
    elif status is None or last is None:
        message = f"{where} is not connected: it has never reported to this hub"
    elif now - last.timestamp() < FRESH_SECONDS and _is_older(status.version or "", version):
        message = (
            f"{where} runs Rota {status.version}, which does not let its hub reach instances: upgrade it to {version}."
            " Until then, ask in the cell itself"
        )
    else:
        ago = max(int(now - last.timestamp()), 0)
        message = f"{where} is not connected: its last report was at {_moment(last)}, {ago} s ago. What runs goes on"
    return ApiError(503, "ServiceUnavailable", message, details={"name": name, "kind": "cells"})


def _is_older(one: str, other: str) -> bool:
    parts = [VERSION.match(each) for each in (one, other)]
    if parts[0] is None or parts[1] is None:
        return False
    return (int(parts[0][1]), int(parts[0][2])) < (int(parts[1][1]), int(parts[1][2]))


def _moment(when: datetime) -> str:
    return when.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


# In the cell.


def mirrored(objects: Objects, instance: Instance) -> Source | None:
    """Return the deployment at the hub of an instance in this cell; None: the instance is the cell's own."""
    owner = controller_of(instance)
    if owner is None or owner.kind != WorkloadDeployment.api.name:
        return None
    deployment = get(objects, WorkloadDeployment, owner.name, instance.metadata.namespace)
    return source_of(deployment) if deployment is not None and deployment.metadata.uid == owner.uid else None


def sought(objects: Objects, ask: Ask) -> Instance:
    """Return the requested instance. Raises ApiError unless it runs for this hub and has the requested uid."""
    instance = get(objects, Instance, ask.name, ask.namespace)
    source = mirrored(objects, instance) if instance is not None else None
    is_it = instance is not None and source is not None and instance.metadata.uid == ask.uid
    if (
        instance is None
        or source is None
        or not is_it
        or source.uid != ask.deployment
        or (ask.method, ask.what) not in MAY
    ):
        # The same message for all, so that a hub learns nothing of other instances here.
        raise ApiError(
            404,
            "NotFound",
            f'instance "{ask.namespace}/{ask.name}" is none that this cell runs for its hub, or is no longer the same',
            details={"name": ask.name, "kind": Instance.api.plural},
        )
    if not ask.admin and ask.what != "logs" and (why := reach(objects, instance)):
        raise forbidden(Instance.api, ask.name, f"it {why}: this takes a token of scope admin at the hub")
    return instance
