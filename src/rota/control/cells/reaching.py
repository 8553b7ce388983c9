"""Reaching an instance of a cell through its hub: the messages of both, and what a cell lets its hub ask for.

The hub never dials a cell. A cell keeps one connection to its hub, over which it is asked; for each request it opens
another, over which that is answered. Who may ask is decided at the hub. The cell lets its hub reach the instances that
it runs for it, and nothing else.
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
"""Spoken on the connections of both sorts."""
HEADERS = frozenset(("accept", "content-type", "content-length", "sec-websocket-protocol"))
"""Headers of a request that its cell is told. Credentials are not among them."""
ANSWER_HEADERS = frozenset(("Rota-Mode", "Rota-Length", "Retry-After"))
"""Headers of an answer that are passed on."""
STATUSES = frozenset((101, 200, 400, 403, 404, 405, 409, 413, 429, 500, 501, 503, 507))
"""Answers that a cell may give."""
MESSAGE_BYTES_MAX = 128 * 1024
"""The most bytes of one message. Larger pieces are divided."""
PIECE_BYTES = 64 * 1024
WAITING_BYTES_MAX = 256 * 1024
"""Bytes of one request that have come over a tunnel and are not passed on yet, in each direction."""
FRESH_SECONDS = 30.0
"""A cell that was heard of within this time reports."""

What = Literal["logs", "exec", "files", "archive"]
MAY = frozenset(
    (
        ("GET", "logs"),
        ("GET", "exec"),
        *((method, what) for what in ("files", "archive") for method in ("GET", "PUT", "DELETE")),
    )
)
"""Everything that a hub may ask of a cell."""

Line = Annotated[str, msgspec.Meta(max_length=1024, pattern=exact("^[ -~]*$"))]
"""A text that can be a header."""


class Hello(msgspec.Struct, rename="camel", tag="hello"):
    """The first message of a cell. Unknown fields are ignored: the cell may be newer."""

    identity: Uid
    boot: Count
    version: Annotated[str, msgspec.Meta(max_length=253)] = ""


class Welcome(msgspec.Struct, rename="camel", tag="welcome"):
    """The hub's answer to it: the cell is connected."""

    hub: Annotated[str, msgspec.Meta(max_length=64)]
    """The identity of the hub's store. A cell answers nothing that another hub asks."""


class Ask(msgspec.Struct, rename="camel", tag="ask"):
    """A request for one instance of the cell."""

    id: Annotated[str, msgspec.Meta(pattern=exact("^[-_A-Za-z0-9]{22}$"))]
    """Names the connection on which it is answered."""
    method: Literal["GET", "PUT", "DELETE"]
    what: What
    namespace: Name
    name: Name
    uid: Uid
    """The uid that the instance has in the cell."""
    deployment: Uid
    """The uid that its deployment has at the hub."""
    query: Annotated[str, msgspec.Meta(max_length=64 * 1024)] = ""
    headers: dict[str, str] = {}
    user: Annotated[str, msgspec.Meta(max_length=253)] = ""
    """Whoever asks, by the name that they have at the hub."""
    admin: bool = False


class Refusal(msgspec.Struct, rename="camel", tag="refusal"):
    """Said over the first connection: a request is not even begun."""

    id: Annotated[str, msgspec.Meta(max_length=64)]
    code: int
    reason: Annotated[str, msgspec.Meta(max_length=64)]
    message: Annotated[str, msgspec.Meta(max_length=4096)]


class Continue(msgspec.Struct, tag="continue"):
    """The body of the request is wanted."""


class Head(msgspec.Struct, rename="camel", tag="head"):
    """The beginning of an answer. After 101 come the messages of a WebSocket; after any other the body, and `End`."""

    status: int
    content_type: Line = ""
    headers: dict[str, Line] = {}
    length: int = -1
    """Bytes of a body that is whole already; -1: it goes on."""


class End(msgspec.Struct, tag="end"):
    """The body is whole."""


FromCell = Continue | Head | End
FromHub = Welcome | Ask
encode = msgspec.json.Encoder().encode


def said(message: msgspec.Struct) -> str:
    """Return a message as text. Bytes of bodies are messages in binary."""
    return encode(message).decode()


# At the hub.


def elsewhere(objects: Objects, namespace: str, name: str) -> Instance | None:
    """Return an instance if it runs in a cell that reports to this hub; None: it does not, or there is none."""
    found = get(objects, Instance, name, namespace)
    return found if found is not None and is_copy(found) and found.spec.cell_name else None


def asked(
    instance: Instance, id_: str, method: str, what: str, query: str, headers: dict[str, str], user: str, *, admin: bool
) -> Ask:
    """Return what a cell is asked. Raises ApiError for what is not asked of cells."""
    owner = controller_of(instance)
    if (method, what) not in MAY or owner is None:
        raise ApiError(405, "MethodNotAllowed", "the server does not allow this method on the requested resource")
    meta = instance.metadata
    passed = {name: value for name, value in headers.items() if name in HEADERS}
    about = {"namespace": meta.namespace, "name": meta.name, "uid": meta.annotations[CELL_UID], "deployment": owner.uid}
    told = {"id": id_, "method": method, "what": what, "query": query, "headers": passed, "user": user, "admin": admin}
    return msgspec.convert({**about, **told, "type": "ask"}, Ask)


def absent(cell: Cell | None, name: str, version: str, now: float) -> ApiError:
    """Return the answer to a request for an instance of a cell that is not connected.

    version     of this hub
    """
    where = f'cell "{name}" in {cell.spec.city_code}' if cell is not None else f'cell "{name}"'
    status = cell.status if cell is not None else None
    heard = status.last_heartbeat_time if status is not None else None
    if cell is None:
        message = f"{where} is not known here any more"
    elif status is None or heard is None:
        message = f"{where} is not connected: it has not been heard of since it was made known here"
    elif now - heard.timestamp() < FRESH_SECONDS and _is_older(status.version or "", version):
        message = (
            f"{where} runs Rota {status.version}, which does not let its hub reach instances: upgrade it to {version}."
            " Until then, ask in the cell itself"
        )
    else:
        ago = max(int(now - heard.timestamp()), 0)
        message = f"{where} is not connected: it was last heard of at {_moment(heard)}, {ago} s ago. What runs goes on"
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
    """Return the deployment at the hub that an instance is of; None: it is this cell's own."""
    owner = controller_of(instance)
    if owner is None or owner.kind != WorkloadDeployment.api.name:
        return None
    deployment = get(objects, WorkloadDeployment, owner.name, instance.metadata.namespace)
    return source_of(deployment) if deployment is not None and deployment.metadata.uid == owner.uid else None


def sought(objects: Objects, ask: Ask) -> Instance:
    """Return the instance that a hub asks for. Raises ApiError unless it is run for that hub, and still the same."""
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
        # One sentence for all: a hub learns nothing of what else is here.
        raise ApiError(
            404,
            "NotFound",
            f'instance "{ask.namespace}/{ask.name}" is none that this cell runs for its hub, or is no longer the same',
            details={"name": ask.name, "kind": Instance.api.plural},
        )
    if not ask.admin and ask.what != "logs" and (why := reach(objects, instance)):
        raise forbidden(Instance.api, ask.name, f"it {why}: this takes a token of scope admin at the hub")
    return instance
