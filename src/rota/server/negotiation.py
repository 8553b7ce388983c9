"""The Accept header: choose the media type and the form of an answer. Pure.

As on Kubernetes, media ranges are tried in the order of their q, specific ones before wildcards, and the first that is
available wins. A parameter `as` requests a transformation, with `g` and `v` for its group and version; where that is
not available, the next media range is tried.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

JSON = "application/json"
YAML = "application/yaml"
PROTOBUF = "application/vnd.kubernetes.protobuf"
STREAM = "watch"
RANGES_MAX = 32
"""Media ranges of one header that are considered."""
WEIGHT = re.compile(r"[01](\.[0-9]{0,3})?|\.[0-9]{1,3}")
HEADERS_REMEMBERED_MAX = 256
"""Parsed headers that are cached: clients send the same few."""


class Transformation(NamedTuple):
    """Another form of an answer: `as=Table;g=meta.k8s.io;v=v1`."""

    kind: str
    group: str = ""
    version: str = ""


class MediaRange(NamedTuple):
    """One media range of a header."""

    type: str
    subtype: str
    parameters: Mapping[str, str]
    q: float

    @property
    def transformation(self) -> Transformation | None:
        given = [self.parameters.get(name, "") for name in ("as", "g", "v")]
        return Transformation(*given) if any(given) else None

    def covers(self, media_type: str) -> bool:
        type_, _, subtype = media_type.partition("/")
        return self.type in (type_, "*") and self.subtype in (subtype, "*")


class Negotiated(NamedTuple):
    """The media type and form of an answer."""

    media_type: str
    transformation: Transformation | None = None


Allowed = Callable[[str, Transformation | None], bool]
"""Report whether an answer is available as a media type with a transformation."""


def negotiated(accept: str, media_types: Sequence[str], allowed: Allowed) -> Negotiated | None:
    """Return the first available choice, or None. Without a header, it is the first media type."""
    if not accept:
        return Negotiated(media_types[0])
    found = _acceptable(media_ranges(accept), media_types, allowed)
    best = next(found, None)
    if best is None:
        return None
    range_, negotiated_ = best
    if negotiated_.media_type != PROTOBUF:
        return negotiated_
    # Objects are stored as JSON. A client that accepts it as much as protobuf gets it.
    for other, instead in found:
        if other.q == range_.q and instead == negotiated_._replace(media_type=JSON):
            return instead
    return negotiated_


def _acceptable(
    given: Sequence[MediaRange], media_types: Sequence[str], allowed: Allowed
) -> Iterator[tuple[MediaRange, Negotiated]]:
    for range_ in given:
        if range_.parameters.get("stream", STREAM) != STREAM:
            continue
        for media_type in media_types:
            if range_.covers(media_type) and allowed(media_type, range_.transformation):
                yield range_, Negotiated(media_type, range_.transformation)


@lru_cache(HEADERS_REMEMBERED_MAX)
def media_ranges(accept: str) -> tuple[MediaRange, ...]:
    """Return the media ranges of a header, the preferred one first."""
    read = [range_ for part in accept.split(",")[:RANGES_MAX] if (range_ := _media_range(part)) is not None]
    return tuple(sorted(read, key=lambda range_: (-range_.q, range_.type == "*", range_.subtype == "*")))


def _media_range(text: str) -> MediaRange | None:
    media_type, *rest = (part.strip() for part in text.split(";"))
    type_, slash, subtype = media_type.lower().partition("/")
    if not slash:
        # A single asterisk stands for all types.
        type_, subtype = ("*", "*") if type_ == "*" else ("", "")
    if not type_ or not subtype:
        return None
    parameters = {name.strip().lower(): value.strip() for name, _, value in (part.partition("=") for part in rest)}
    weight = parameters.pop("q", "1")
    return MediaRange(type_, subtype, parameters, min(float(weight), 1.0) if WEIGHT.fullmatch(weight) else 0.0)
