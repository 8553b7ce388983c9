"""Lists and watches: selection, pages, resource versions and bookmarks, on snapshots and events of the store."""

from __future__ import annotations

import asyncio
import base64
import binascii
from collections.abc import AsyncIterator, Iterator
from functools import partial
from typing import Any

import msgspec

from rota.api import Kind
from rota.api.problems import NOT_JSON, forbidden
from rota.registry import errors, versions
from rota.registry.options import Listing, ListOptions, WatchEvent, WatchOptions
from rota.registry.pacing import Pace
from rota.registry.selectors import LazyObject, Selection, SharedEvent
from rota.store import Event, FutureRevision, Gone, Page, Store, StoreFull, StoreStopped, WatchClosed

BOOKMARK_SECONDS = 60.0
FUTURE_REVISION_WAIT_SECONDS = 3.0
"""Seconds that a list waits for a version that is not reached yet."""
INITIAL_EVENTS_END = "k8s.io/initial-events-end"
SCAN_PAGE_ENTRIES = 500
SCAN_PAGE_BYTES = 256 * 1024
"""Bounds on one step of a selective list. Other work runs between two steps."""

INITIAL_PAGE_ENTRIES = 500
INITIAL_PAGE_BYTES = 256 * 1024
"""Bounds on one page of the initial state of a watch, which is read from the store as it is sent."""

_decode = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode


class Token(msgspec.Struct, rename={"revision": "rv", "after": "start", "version": "v"}):
    """The continue token of a paged list."""

    revision: int
    after: str
    version: str = "meta.k8s.io/v1"


def _prefix(kind: Kind, namespace: str) -> str:
    bucket = kind.storage.bucket
    return f"{bucket}/{namespace}/" if namespace else f"{bucket}/"


def revision_of(text: str) -> int:
    """Parse a resource version.

    They are opaque to clients, which send those that they were given.
    """
    if not text:
        return 0
    if not (text.isascii() and text.isdigit() and len(text) <= 19):
        raise errors.bad_request(
            f'invalid resource version: resourceVersion: Invalid value: "{text}": strconv.ParseUint: parsing "{text}": '
            "invalid syntax"
        )
    return int(text)


async def listing(store: Store, kind: Kind, namespace: str, options: ListOptions) -> Listing:
    """Return a page of a list."""
    selection = Selection(kind, options.label_selector, options.field_selector)
    prefix = _prefix(kind, namespace)
    wanted = revision_of(options.resource_version)
    after, revision = "", 0
    if options.continue_:
        if options.resource_version_match:
            raise _no_match("resourceVersionMatch is forbidden when continue is provided")
        if wanted:
            raise errors.bad_request("specifying resource version is not allowed when using continue")
        token = _token(options.continue_, prefix)
        after, revision = token.after, token.revision
    elif options.resource_version_match and not options.resource_version:
        raise _no_match("resourceVersionMatch is forbidden unless resourceVersion is provided")
    elif options.resource_version_match == "Exact":
        if not wanted:
            raise _no_match('resourceVersionMatch "exact" is forbidden for resourceVersion "0"')
        revision = wanted
    if wanted > store.revision:
        await _wait_for_revision(store, wanted)
    try:
        entries, page = await _page(store, prefix, after, max(options.limit, 0), revision, selection)
    except Gone:
        raise _too_old(bool(options.continue_)) from None
    except FutureRevision as future:
        raise errors.too_large_version(future.revision, future.current) from None
    if kind.stored is not None:
        entries = [versions.shown(kind, value) for value in entries]
    if not page.more:
        return Listing(entries, page.revision)
    token_text = base64.urlsafe_b64encode(_encode(Token(page.revision, page.entries[-1].key))).decode().rstrip("=")
    return Listing(entries, page.revision, token_text, None if selection else page.remaining)


async def _page(
    store: Store, prefix: str, after: str, limit: int, revision: int, selection: Selection
) -> tuple[list[bytes], Page]:
    """Return the selected values, and the last page read from the store, where the next list continues."""
    if not selection:
        page = store.list(prefix, after=after, limit=limit, revision=revision)
        return [entry.value for entry in page.entries], page
    found: list[bytes] = []
    async with Pace() as pace:
        while True:
            await pace()
            page = store.list(
                prefix, after=after, limit=SCAN_PAGE_ENTRIES, revision=revision, bytes_max=SCAN_PAGE_BYTES
            )
            for i, entry in enumerate(page.entries):
                await pace()
                if selection.matches(entry.key, LazyObject(entry.value)):
                    found.append(entry.value)
                    if len(found) == limit:
                        more = page.more or i + 1 < len(page.entries)
                        return found, Page(page.entries[: i + 1], page.revision, more, 0)
            if not page.more:
                return found, page
            after, revision = page.entries[-1].key, page.revision


def _no_match(why: str) -> errors.ApiError:
    return errors.invalid_options("ListOptions", [forbidden("resourceVersionMatch", why)])


async def _wait_for_revision(store: Store, wanted: int) -> None:
    """Wait until a version is durable, up to `FUTURE_REVISION_WAIT_SECONDS`."""
    try:
        async with asyncio.timeout(FUTURE_REVISION_WAIT_SECONDS):
            await store.durable(wanted)
    except (TimeoutError, FutureRevision):
        raise errors.too_large_version(wanted, store.revision) from None
    except StoreFull as full:
        raise errors.disk_full(str(full)) from None
    except StoreStopped as stopped:
        raise errors.unavailable(str(stopped)) from None


def _token(text: str, prefix: str) -> Token:
    try:
        token = msgspec.json.decode(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)), type=Token)
    except (binascii.Error, ValueError, *NOT_JSON):
        raise errors.bad_request(
            "invalid continue token: continue key is not valid: it is not what a list answered"
        ) from None
    if not token.after.startswith(prefix) or token.revision < 1:
        raise errors.bad_request("invalid continue token: continue key is not valid: it belongs to another list")
    return token


def _too_old(continued: bool) -> errors.ApiError:
    if continued:
        return errors.expired(
            "The provided continue parameter is too old to display a consistent list result. You must start a new list "
            "without the continue parameter."
        )
    return errors.expired("The resourceVersion for the provided list is too old.")


async def watching(store: Store, kind: Kind, namespace: str, options: WatchOptions) -> AsyncIterator[list[WatchEvent]]:
    """Yield batches of events. Ends when the store is closed."""
    selection = Selection(kind, options.label_selector, options.field_selector)
    prefix = _prefix(kind, namespace)
    since = revision_of(options.resource_version)
    initial = options.send_initial_events if options.send_initial_events is not None else since == 0
    if initial:
        # The snapshot and the watch begin at the same revision: no event is lost between them.
        if since > store.revision:
            await _wait_for_revision(store, since)
        since = store.revision
    try:
        watch = store.watch(prefix, since or store.revision)
    except Gone:
        raise errors.expired(f"too old resource version: {since} ({store.compacted})") from None
    except FutureRevision as future:
        raise errors.too_large_version(future.revision, future.current) from None
    with watch:
        if initial:
            async with Pace() as pace:
                for batch in _initial(store, kind, prefix, since, selection):
                    pace.rest()
                    yield batch
                    await pace()
            del batch
            if options.send_initial_events and options.bookmarks:
                yield [bookmark(kind, since, initial_end=True)]
        while True:
            try:
                if options.bookmarks:
                    async with asyncio.timeout(BOOKMARK_SECONDS):
                        events = await watch.next()
                else:
                    events = await watch.next()
            except TimeoutError:
                yield [bookmark(kind, watch.position)]
                continue
            except Gone as gone:
                raise errors.expired(f"too old resource version: {gone.revision} ({gone.compacted})") from None
            except WatchClosed:
                return
            except StoreStopped as stopped:
                raise errors.unavailable(str(stopped)) from None
            batch = selected(events, selection)
            if kind.stored is not None:
                batch = [_in_version(kind, each) for each in batch]
            if batch:
                yield batch
            # Free them before waiting for the next events.
            del events, batch


def _initial(store: Store, kind: Kind, prefix: str, revision: int, selection: Selection) -> Iterator[list[WatchEvent]]:
    """Yield the objects at a revision as events, page by page."""
    after, more = "", True
    while more:
        try:
            page = store.list(
                prefix, after=after, limit=INITIAL_PAGE_ENTRIES, revision=revision, bytes_max=INITIAL_PAGE_BYTES
            )
        except Gone as gone:
            raise errors.expired(f"too old resource version: {gone.revision} ({gone.compacted})") from None
        if page.entries:
            after = page.entries[-1].key
        more = page.more
        yield [
            WatchEvent("ADDED", versions.shown(kind, entry.value), entry.rev)
            for entry in page.entries
            if not selection or selection.matches(entry.key, LazyObject(entry.value))
        ]


def _in_version(kind: Kind, event: WatchEvent) -> WatchEvent:
    make = partial(versions.shown, kind, event.object)
    # The last state and the state at deletion may differ.
    name = ("version", kind.api_version, event.type == "DELETED")
    value = event.shared.once(name, make) if event.shared is not None else make()
    return WatchEvent(event.type, value, event.revision, event.shared)


def selected(events: list[Event], selection: Selection) -> list[WatchEvent]:
    """Return the events for a selection: an object that begins to match is ADDED, one that ceases to match DELETED."""
    if not selection:
        return [
            WatchEvent(
                "DELETED" if e.deleted else "MODIFIED" if e.prev is not None else "ADDED", e.value, e.rev, _shared(e)
            )
            for e in events
        ]
    out = []
    for e in events:
        shared = _shared(e)
        was = shared.before is not None and selection.matches(e.key, shared.before)
        now = not e.deleted and selection.matches(e.key, shared.now)
        if now:
            out.append(WatchEvent("MODIFIED" if was else "ADDED", e.value, e.rev, shared))
        elif was:
            value = e.value if e.deleted else shared.once("gone", partial(_at_revision, e.prev or b"", e.rev))
            out.append(WatchEvent("DELETED", value, e.rev, shared))
    return out


def _shared(event: Event) -> SharedEvent:
    if event.cache is None:
        event.cache = SharedEvent(event.value, event.prev)
    shared: SharedEvent = event.cache
    return shared


def _at_revision(value: bytes, revision: int) -> bytes:
    obj = _decode(value)
    obj["metadata"]["resourceVersion"] = str(revision)
    return _encode(obj)


def bookmark(kind: Kind, revision: int, *, initial_end: bool = False) -> WatchEvent:
    """Return a bookmark: everything up to this revision has been sent."""
    meta: dict[str, Any] = {"resourceVersion": str(revision), "creationTimestamp": None}
    if initial_end:
        meta["annotations"] = {INITIAL_EVENTS_END: "true"}
    return WatchEvent(
        "BOOKMARK", _encode({"apiVersion": kind.api_version, "kind": kind.name, "metadata": meta}), revision
    )
