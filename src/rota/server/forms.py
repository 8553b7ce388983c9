"""Render objects as JSON in the form that a client wants: whole, as rows of a table, or only their metadata."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import msgspec

from rota.api.table import rows
from rota.registry import Listing, WatchEvent
from rota.registry.pacing import Pace
from rota.registry.reading import INITIAL_EVENTS_END
from rota.registry.scaling import SCALE
from rota.registry.versions import inward
from rota.server import protobuf_writing
from rota.server.media import Wanted
from rota.server.negotiation import PROTOBUF
from rota.server.routing import Route

Object = dict[str, Any]
META = "meta.k8s.io"

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


def one(where: Route, value: bytes, wanted: Wanted) -> bytes:
    """Render one object."""
    if wanted.form == "object":
        return value
    obj = _decode(value)
    return _encode(_table(where, [obj], wanted) if wanted.form == "table" else _metadata_only(obj, wanted))


async def whole_list(where: Route, listing: Listing, wanted: Wanted) -> bytes:
    """Render a page of a list. Objects are decoded one by one, and only their short form is kept."""
    meta: Object = {"resourceVersion": str(listing.revision)}
    if listing.continue_:
        meta["continue"] = listing.continue_
        if listing.remaining is not None:
            meta["remainingItemCount"] = listing.remaining
    if wanted.form == "table":
        table = _table(where, [], wanted)
        async with Pace() as pace:
            for value in listing.items:
                await pace()
                table["rows"] += _table(where, [_decode(value)], wanted)["rows"]
        return _encode({**table, "metadata": meta})
    if wanted.form == "metadata":
        items = []
        async with Pace() as pace:
            for value in listing.items:
                await pace()
                items.append(_metadata_only(_decode(value), wanted))
        frame = {"kind": "PartialObjectMetadataList", "apiVersion": f"{META}/{wanted.meta_version}"}
        return _encode({**frame, "metadata": meta, "items": items})
    head = _encode({"apiVersion": where.kind.api_version, "kind": f"{where.kind.name}List", "metadata": meta})
    return b'%b,"items":[%b]}' % (head[:-1], b",".join(listing.items))


def grouped(batch: list[WatchEvent], most: int) -> Iterator[tuple[list[WatchEvent], int]]:
    """Yield the events in groups of a bounded number of bytes, or of one event, with the bytes of each."""
    group: list[WatchEvent] = []
    size = 0
    for each in batch:
        more = len(each.object)
        if group and size + more > most:
            yield group, size
            group, size = [], 0
        group.append(each)
        size += more
    yield group, size


def events(where: Route, batch: list[WatchEvent], wanted: Wanted, *, headed: bool) -> bytes:
    """Encode a batch of events. They are joined, because each write to the client is expensive."""
    if wanted.form == "object" and wanted.media_type != PROTOBUF:
        return b"".join([b'{"type":"%b","object":%b}\n' % (e.type.encode(), e.object) for e in batch])
    lines = []
    for each in batch:
        make = partial(_event_line, where, each, wanted, headed=headed)
        # Ages in a table change every second.
        name = (where.kind.api_version, where.subresource, wanted, each.type, headed, int(time.time()))
        is_large = wanted.form == "object" or wanted.include == "Object"
        lines.append(make() if each.shared is None or is_large else each.shared.once(name, make))
        headed = False
    return b"".join(lines)


def _event_line(where: Route, event_: WatchEvent, wanted: Wanted, *, headed: bool) -> bytes:
    obj = _decode(event_.object)
    if wanted.form == "table":
        obj = _table(where, [obj], wanted, headed=headed)
    elif wanted.form == "metadata":
        obj = _metadata_only(obj, wanted)
    return event(event_.type, obj, wanted)


def event(type_: str, obj: Object, wanted: Wanted) -> bytes:
    """Encode one event of a watch."""
    if wanted.media_type == PROTOBUF:
        return protobuf_writing.event_frame(type_, obj)
    return b'{"type":"%b","object":%b}\n' % (type_.encode(), _encode(obj))


def success(details: Object) -> bytes:
    """Encode the answer to a deletion that leaves nothing."""
    return _encode({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details})


def _table(where: Route, objects: list[Object], wanted: Wanted, *, headed: bool = True) -> Object:
    kind = SCALE if where.subresource == "scale" else where.kind.storage
    table = rows(kind, [inward(where.kind, obj) for obj in objects], time.time())
    table["apiVersion"] = f"{META}/{wanted.meta_version}"
    for row, obj in zip(table["rows"], objects, strict=True):
        row["object"] = _of_row(obj, wanted)
    if not headed:
        table["columnDefinitions"] = None
    if len(objects) == 1:
        table["metadata"] = {"resourceVersion": objects[0]["metadata"].get("resourceVersion", "")}
    return table


def _of_row(obj: Object, wanted: Wanted) -> Object | None:
    if wanted.include == "Object":
        return obj
    # A bookmark is sent for the mark in its annotations.
    is_mark = INITIAL_EVENTS_END in (obj["metadata"].get("annotations") or {})
    return _metadata_only(obj, wanted) if wanted.include == "Metadata" or is_mark else None


def _metadata_only(obj: Object, wanted: Wanted) -> Object:
    api_version = f"{META}/{wanted.meta_version}"
    return {"kind": "PartialObjectMetadata", "apiVersion": api_version, "metadata": obj["metadata"]}
