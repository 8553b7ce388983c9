"""Kubernetes' protobuf bodies, against an encoder of its own that goes by the published messages."""

from __future__ import annotations

import base64
import re
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rota.server import protobuf, protobuf_messages, protobuf_writing
from tests.server.conftest import Server

# The messages of the stock clients' core kinds, as Kubernetes publishes them in its `generated.proto` files.
PUBLISHED = """
message Unknown { TypeMeta typeMeta = 1; bytes raw = 2; string contentEncoding = 3; string contentType = 4; }
message TypeMeta { string apiVersion = 1; string kind = 2; }

message ObjectMeta {
  string name = 1; string generateName = 2; string namespace = 3; string selfLink = 4; string uid = 5;
  string resourceVersion = 6; int64 generation = 7; Time creationTimestamp = 8; Time deletionTimestamp = 9;
  int64 deletionGracePeriodSeconds = 10; map<string, string> labels = 11; map<string, string> annotations = 12;
  repeated OwnerReference ownerReferences = 13; repeated string finalizers = 14;
  repeated ManagedFieldsEntry managedFields = 17;
}
message OwnerReference {
  string kind = 1; string name = 3; string uid = 4; string apiVersion = 5; bool controller = 6;
  bool blockOwnerDeletion = 7;
}
message ManagedFieldsEntry {
  string manager = 1; string operation = 2; string apiVersion = 3; Time time = 4; string fieldsType = 6;
  FieldsV1 fieldsV1 = 7; string subresource = 8;
}
message FieldsV1 { bytes Raw = 1; }
message Time { int64 seconds = 1; int32 nanos = 2; }
message MicroTime { int64 seconds = 1; int32 nanos = 2; }
message DeleteOptions {
  int64 gracePeriodSeconds = 1; Preconditions preconditions = 2; bool orphanDependents = 3;
  string propagationPolicy = 4; repeated string dryRun = 5;
}
message Preconditions { string uid = 1; string resourceVersion = 2; }

message Namespace { ObjectMeta metadata = 1; NamespaceSpec spec = 2; NamespaceStatus status = 3; }
message NamespaceSpec { repeated string finalizers = 1; }
message NamespaceStatus { string phase = 1; repeated NamespaceCondition conditions = 2; }
message NamespaceCondition {
  string type = 1; string status = 2; Time lastTransitionTime = 4; string reason = 5; string message = 6;
}
message ConfigMap {
  ObjectMeta metadata = 1; map<string, string> data = 2; map<string, bytes> binaryData = 3; bool immutable = 4;
}
message Secret {
  ObjectMeta metadata = 1; map<string, bytes> data = 2; string type = 3; map<string, string> stringData = 4;
  bool immutable = 5;
}
message Event {
  ObjectMeta metadata = 1; ObjectReference involvedObject = 2; string reason = 3; string message = 4;
  EventSource source = 5; Time firstTimestamp = 6; Time lastTimestamp = 7; int32 count = 8; string type = 9;
  MicroTime eventTime = 10; EventSeries series = 11; string action = 12; ObjectReference related = 13;
  string reportingComponent = 14; string reportingInstance = 15;
}
message EventsEvent {
  ObjectMeta metadata = 1; MicroTime eventTime = 2; EventSeries series = 3; string reportingController = 4;
  string reportingInstance = 5; string action = 6; string reason = 7; ObjectReference regarding = 8;
  ObjectReference related = 9; string note = 10; string type = 11; EventSource deprecatedSource = 12;
  Time deprecatedFirstTimestamp = 13; Time deprecatedLastTimestamp = 14; int32 deprecatedCount = 15;
}
message EventSource { string component = 1; string host = 2; }
message EventSeries { int32 count = 1; MicroTime lastObservedTime = 2; }
message ObjectReference {
  string kind = 1; string namespace = 2; string name = 3; string uid = 4; string apiVersion = 5;
  string resourceVersion = 6; string fieldPath = 7;
}
message Role { ObjectMeta metadata = 1; repeated PolicyRule rules = 2; }
message PolicyRule {
  repeated string verbs = 1; repeated string apiGroups = 2; repeated string resources = 3;
  repeated string resourceNames = 4; repeated string nonResourceURLs = 5;
}
message Lease { ObjectMeta metadata = 1; LeaseSpec spec = 2; }
message LeaseSpec {
  string holderIdentity = 1; int32 leaseDurationSeconds = 2; MicroTime acquireTime = 3; MicroTime renewTime = 4;
  int32 leaseTransitions = 5; string strategy = 6; string preferredHolder = 7;
}
message SelfSubjectReview { ObjectMeta metadata = 1; SelfSubjectReviewStatus status = 2; }
message SelfSubjectReviewStatus { UserInfo userInfo = 1; }
message UserInfo { string username = 1; string uid = 2; repeated string groups = 3; map<string, ExtraValue> extra = 4; }
message ExtraValue { repeated string items = 1; }
message SelfSubjectAccessReview {
  ObjectMeta metadata = 1; SelfSubjectAccessReviewSpec spec = 2; SubjectAccessReviewStatus status = 3;
}
message SubjectAccessReviewStatus { bool allowed = 1; string reason = 2; string evaluationError = 3; bool denied = 4; }
message SelfSubjectAccessReviewSpec {
  ResourceAttributes resourceAttributes = 1; NonResourceAttributes nonResourceAttributes = 2;
}
message ResourceAttributes {
  string namespace = 1; string verb = 2; string group = 3; string version = 4; string resource = 5;
  string subresource = 6; string name = 7;
}
message NonResourceAttributes { string path = 1; string verb = 2; }
message SelfSubjectRulesReview {
  ObjectMeta metadata = 1; SelfSubjectRulesReviewSpec spec = 2; SubjectRulesReviewStatus status = 3;
}
message SelfSubjectRulesReviewSpec { string namespace = 1; }
message SubjectRulesReviewStatus {
  repeated ResourceRule resourceRules = 1; repeated NonResourceRule nonResourceRules = 2; bool incomplete = 3;
  string evaluationError = 4;
}
message ResourceRule {
  repeated string verbs = 1; repeated string apiGroups = 2; repeated string resources = 3;
  repeated string resourceNames = 4;
}
message NonResourceRule { repeated string verbs = 1; repeated string nonResourceURLs = 2; }

message ListMeta { string selfLink = 1; string resourceVersion = 2; string continue = 3; int64 remainingItemCount = 4; }
message Status {
  ListMeta metadata = 1; string status = 2; string message = 3; string reason = 4; StatusDetails details = 5;
  int32 code = 6;
}
message StatusDetails {
  string name = 1; string group = 2; string kind = 3; repeated StatusCause causes = 4; int32 retryAfterSeconds = 5;
  string uid = 6;
}
message StatusCause { string reason = 1; string message = 2; string field = 3; }
message PartialObjectMetadata { ObjectMeta metadata = 1; }
message ConfigMapList { ListMeta metadata = 1; repeated ConfigMap items = 2; }
message WatchEvent { string type = 1; RawExtension object = 2; }
message RawExtension { bytes raw = 1; }
"""
FIELD = re.compile(r"(repeated )?(map<string, (?P<map>\w+)>|(?P<type>\w+)) (?P<name>\w+) = (?P<number>\d+);")
MESSAGES = {
    name: {field["name"]: field for field in FIELD.finditer(body)}
    for name, body in re.findall(r"message (\w+) \{(.*?)\}", PUBLISHED, re.DOTALL)
}
KINDS = [*sorted(protobuf_messages.MESSAGES), "ConfigMapList"]


# The encoder.


def varint(number: int) -> bytes:
    number &= (1 << 64) - 1
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def tagged(number: int, value: int | bytes) -> bytes:
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def scalar(type_: str, value: Any) -> int | bytes:
    if type_ in ("int32", "int64", "bool"):
        return int(value)
    if type_ == "string":
        return bytes(value, "utf-8")
    if type_ == "bytes":
        return base64.b64decode(value)
    if type_ in ("Time", "MicroTime"):
        since = datetime.fromisoformat(value) - EPOCH
        nanos = since.microseconds * 1000
        return message(type_, {"seconds": since.days * 86400 + since.seconds, "nanos": nanos})
    if type_ == "FieldsV1":
        return tagged(1, msgspec.json.encode(value))
    if type_ == "ExtraValue":
        return message(type_, {"items": value})
    return message(type_, value)


def message(type_: str, value: dict[str, Any]) -> bytes:
    out = b""
    for name, inner in value.items():
        field = MESSAGES[type_][name]
        number = int(field["number"])
        if field["map"]:
            for key, item in inner.items():
                out += tagged(number, tagged(1, key.encode()) + tagged(2, scalar(field["map"], item)))
        else:
            for item in inner if field[1] else [inner]:
                out += tagged(number, scalar(field["type"], item))
    return out


def frame(kind: str) -> dict[str, str]:
    """The apiVersion and the kind, of what may be in a group: `Event.events.k8s.io`."""
    name, _, group = kind.partition(".")
    return {"apiVersion": f"{group}/v1" if group else "v1", "kind": name}


def published(kind: str) -> str:
    """The name of a kind's message."""
    return "EventsEvent" if kind == "Event.events.k8s.io" else kind


def body(kind: str, value: dict[str, Any]) -> bytes:
    raw = message(published(kind), value)
    return b"k8s\x00" + tagged(1, message("TypeMeta", frame(kind))) + tagged(2, raw) + tagged(3, b"") + tagged(4, b"")


# Values of every message.

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def written(second: int, micro: int, precision: str) -> str:
    at = EPOCH + timedelta(seconds=second, microseconds=micro)
    return at.isoformat(timespec=precision).replace("+00:00", "Z")


texts = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8)
seconds = st.integers(-62135596800, 253402300799)
SIMPLE: dict[str, st.SearchStrategy[Any]] = {
    "string": texts,
    "bytes": st.binary(max_size=12).map(lambda data: base64.b64encode(data).decode()),
    "bool": st.booleans(),
    "int32": st.integers(-(2**31), 2**31 - 1),
    "int64": st.integers(-(2**63), 2**63 - 1),
    "Time": seconds.map(lambda s: written(s, 0, "seconds")),
    "MicroTime": st.builds(written, seconds, st.integers(0, 999_999), st.just("microseconds")),
    "FieldsV1": st.just({"f:metadata": {"f:labels": {".": {}}}}),
    "ExtraValue": st.lists(texts, min_size=1, max_size=2),
}


def values(type_: str) -> st.SearchStrategy[Any]:
    """JSON of a message: any of its fields, none of them empty."""
    if type_ in SIMPLE:
        return SIMPLE[type_]
    fields: dict[str, st.SearchStrategy[Any]] = {}
    for name, field in MESSAGES[type_].items():
        if field["map"]:
            fields[name] = st.dictionaries(texts, SIMPLE[field["map"]], min_size=1, max_size=3)
        elif field[1]:
            fields[name] = st.lists(values(field["type"]), min_size=1, max_size=2)
        else:
            fields[name] = values(field["type"])
    return st.fixed_dictionaries({}, optional=fields).map(
        lambda value: {name: inner for name, inner in value.items() if inner != {}}
    )


def full(type_: str) -> Any:
    """JSON of a message with every field set."""
    at = {"Time": "2026-01-02T03:04:05Z", "MicroTime": "2026-01-02T03:04:05.678901Z"}
    simple = {
        "string": "text",
        "bytes": "AP8=",
        "bool": True,
        "int32": -7,
        "int64": 2**40,
        "FieldsV1": {"f:a": {}},
        "ExtraValue": ["one", "two"],
        **at,
    }
    if type_ in simple:
        return simple[type_]
    return {
        name: {"key": full(field["map"])}
        if field["map"]
        else [full(field["type"])]
        if field[1]
        else full(field["type"])
        for name, field in MESSAGES[type_].items()
    }


@pytest.mark.parametrize("kind", KINDS)
def test_every_field_of_every_message_is_read(kind: str) -> None:
    assert protobuf.decode(body(kind, full(published(kind)))) == {**frame(kind), **full(published(kind))}


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_encoded_comes_back(kind: str) -> None:
    @settings(max_examples=60, deadline=None, derandomize=True, database=None)
    @given(value=values(published(kind)))
    def comes_back(value: dict[str, Any]) -> None:
        assert protobuf.decode(body(kind, value)) == {**frame(kind), **value}
        assert protobuf.decode(protobuf_writing.encode({**frame(kind), **value})) == {**frame(kind), **value}

    comes_back()


@pytest.mark.parametrize("kind", KINDS)
def test_every_field_of_every_message_is_written(kind: str) -> None:
    value = full(published(kind))
    envelope = tagged(1, message("TypeMeta", frame(kind))) + tagged(2, message(published(kind), value))
    assert protobuf_writing.encode({**frame(kind), **value}) == b"k8s\x00" + envelope


def test_events_of_a_watch_are_written_with_their_length() -> None:
    obj = {**frame("ConfigMap"), **full("ConfigMap")}
    event = tagged(1, b"ADDED") + tagged(2, tagged(1, protobuf_writing.encode(obj)))
    assert protobuf_writing.event_frame("ADDED", obj) == len(event).to_bytes(4, "big") + event


def test_what_kubernetes_writes_empty_is_left_out() -> None:
    empty = {"name": "a", "generateName": "", "namespace": "", "uid": "", "resourceVersion": "", "generation": 0}
    meta = message("ObjectMeta", empty) + tagged(8, b"")
    sent = b"k8s\x00" + tagged(1, message("TypeMeta", {"apiVersion": "v1", "kind": "Namespace"}))
    sent += tagged(2, tagged(1, meta) + tagged(2, b"") + tagged(3, tagged(1, b"")))
    assert protobuf.decode(sent) == {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": "a", "generation": 0},
    }


def test_false_and_zero_are_kept() -> None:
    assert protobuf.decode(body("ConfigMap", {"immutable": False}))["immutable"] is False
    assert protobuf.decode(body("DeleteOptions", {"gracePeriodSeconds": 0}))["gracePeriodSeconds"] == 0


@pytest.mark.parametrize(
    ("second", "micro", "text"),
    [
        (0, 0, "1970-01-01T00:00:00.000000Z"),
        (-1, 999_999, "1969-12-31T23:59:59.999999Z"),
        (-62135596799, 0, "0001-01-01T00:00:01.000000Z"),
        (253402300799, 1, "9999-12-31T23:59:59.000001Z"),
    ],
)
def test_times_at_the_edges(second: int, micro: int, text: str) -> None:
    at = message("MicroTime", {"seconds": second, "nanos": micro * 1000})
    sent = tagged(1, message("TypeMeta", {"kind": "Lease"})) + tagged(2, tagged(2, tagged(4, at)))
    assert protobuf.decode(b"k8s\x00" + sent)["spec"] == {"renewTime": text}


def test_what_is_optional_may_be_there_and_empty() -> None:
    """As client-go writes the holder of a Lease that it lets go of."""
    sent = raw("Lease", tagged(2, tagged(1, b"") + tagged(2, 1)))
    assert protobuf.decode(sent)["spec"] == {"holderIdentity": "", "leaseDurationSeconds": 1}
    lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "spec": {"holderIdentity": ""}}
    assert protobuf.decode(protobuf_writing.encode(lease)) == lease
    none = {**lease, "spec": {"leaseDurationSeconds": 1}}
    assert protobuf.decode(protobuf_writing.encode(none)) == none


def test_unknown_fields_are_passed_over() -> None:
    unknown = tagged(90, b"x") + tagged(91, 7) + varint(92 << 3 | 1) + bytes(8) + varint(93 << 3 | 5) + bytes(4)
    sent = tagged(1, message("TypeMeta", {"kind": "ConfigMap"})) + tagged(2, unknown + tagged(4, 1) + unknown) + unknown
    assert protobuf.decode(b"k8s\x00" + sent) == {"kind": "ConfigMap", "immutable": True}


def raw(kind: str, data: bytes) -> bytes:
    return b"k8s\x00" + tagged(1, message("TypeMeta", {"kind": kind})) + tagged(2, data)


def at_second(second: int, nanos: int = 0) -> bytes:
    return raw("Lease", tagged(2, tagged(4, message("MicroTime", {"seconds": second, "nanos": nanos}))))


DEEP = b"[" * 100_000
BAD = {
    "no magic": b"",
    "json": b'{"kind":"ConfigMap"}',
    "no kind": b"k8s\x00",
    "a kind that is not known": raw("Secret", b"").replace(b"Secret", b"Secreu"),
    "a number that does not end": raw("ConfigMap", b"\x20" + b"\xff" * 20),
    "a text that ends too early": raw("ConfigMap", b"\x12\x7f"),
    "a text of a size beyond all": raw("ConfigMap", b"\x12" + varint(2**63)),
    "eight bytes that end too early": raw("ConfigMap", varint(92 << 3 | 1) + bytes(7)),
    "four bytes that end too early": raw("ConfigMap", varint(92 << 3 | 5) + bytes(3)),
    "a group": raw("ConfigMap", varint(9 << 3 | 3)),
    "field zero": raw("ConfigMap", tagged(0, 1)),
    "a number for a text": raw("Secret", tagged(3, 1)),
    "a text for a number": raw("ConfigMap", tagged(4, b"1")),
    "text that is not UTF-8": raw("Secret", tagged(3, b"\xff")),
    "a time before the first year": at_second(-62135596801),
    "a time after the last year": at_second(253402300800),
    "a time beyond all": at_second(2**62),
    "nanoseconds below zero": at_second(0, -1),
    "nanoseconds of more than a second": at_second(0, 10**9),
    "owned fields that are not JSON": raw("ConfigMap", tagged(1, tagged(17, tagged(7, tagged(1, b"{"))))),
    "owned fields nested without end": raw("ConfigMap", tagged(1, tagged(17, tagged(7, tagged(1, DEEP))))),
}


@pytest.mark.parametrize("sent", BAD.values(), ids=BAD)
def test_what_is_not_such_a_body_is_refused(sent: bytes) -> None:
    with pytest.raises(ValueError):
        protobuf.decode(sent)


@pytest.mark.parametrize("kind", KINDS)
def test_a_body_that_ends_too_early_is_read_or_refused(kind: str) -> None:
    whole = body(kind, full(published(kind)))
    for size in range(len(whole)):
        read_or_refused(whole[:size])


@settings(max_examples=400, deadline=None, derandomize=True, database=None)
@given(kind=st.sampled_from(KINDS), data=st.binary(max_size=64))
@example(kind="Lease", data=b"")
def test_any_bytes_are_read_or_refused(kind: str, data: bytes) -> None:
    read_or_refused(data)
    read_or_refused(b"k8s\x00" + data)
    read_or_refused(raw(kind, data))


@settings(max_examples=400, deadline=None, derandomize=True, database=None)
@given(kind=st.sampled_from(KINDS), changes=st.lists(st.tuples(st.integers(0, 2000), st.integers(0, 255)), max_size=6))
def test_a_damaged_body_is_read_or_refused(kind: str, changes: list[tuple[int, int]]) -> None:
    damaged = bytearray(body(kind, full(published(kind))))
    for at, byte in changes:
        damaged[at % len(damaged)] = byte
    read_or_refused(bytes(damaged))


def read_or_refused(data: bytes) -> None:
    try:
        read = protobuf.decode(data)
    except ValueError:
        return
    assert msgspec.json.decode(msgspec.json.encode(read)) == read, "what is read is JSON"


async def test_the_server_takes_and_refuses_such_bodies(server: Server) -> None:
    path = "/api/v1/namespaces/default/configmaps"
    headers = {"Content-Type": "application/vnd.kubernetes.protobuf"}
    sent = body("ConfigMap", {"metadata": {"name": "a"}, "data": {"one": "1"}, "binaryData": {"two": "AP8="}})
    made = await server.ask("POST", path, sent, headers=headers)
    assert (made.status, made.json["data"], made.json["binaryData"]) == (201, {"one": "1"}, {"two": "AP8="})
    for bad in (sent[:-9], at_second(2**62), b"", b"\xff"):
        assert (await server.ask("POST", path, bad, headers=headers)).status == 400
    options = body("DeleteOptions", {"preconditions": {"uid": "another"}})
    assert (await server.ask("DELETE", f"{path}/a", options, headers=headers)).status == 409
    options = body("DeleteOptions", {"preconditions": {"uid": made.json["metadata"]["uid"]}})
    assert (await server.ask("DELETE", f"{path}/a", options, headers=headers)).status == 200
