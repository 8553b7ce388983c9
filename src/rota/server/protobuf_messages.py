"""The protobuf messages of Kubernetes' kinds, with the field numbers of its `generated.proto` files.

A field is `number: (name, type)`. Only the types that occur are supported.
"""

from __future__ import annotations

from typing import Any

Field = tuple[str, Any]
Message = dict[int, Field]
TEXT, NUMBER, BOOL, BASE64, TIME, MICRO_TIME, FIELDS = (
    "text",
    "number",
    "bool",
    "base64",
    "time",
    "microtime",
    "fields",
)
OPTIONAL_TEXT = "optional text"
"""A text whose absence differs from an empty one: a pointer in Go."""
TEXT_MAP, BASE64_MAP, LISTS_MAP = "textmap", "base64map", "listsmap"


def _list_of(type_: Any) -> tuple[str, Any]:
    return ("list", type_)


OWNER: Message = {
    1: ("kind", TEXT),
    3: ("name", TEXT),
    4: ("uid", TEXT),
    5: ("apiVersion", TEXT),
    6: ("controller", BOOL),
    7: ("blockOwnerDeletion", BOOL),
}
MANAGED: Message = {
    1: ("manager", TEXT),
    2: ("operation", TEXT),
    3: ("apiVersion", TEXT),
    4: ("time", TIME),
    6: ("fieldsType", TEXT),
    7: ("fieldsV1", FIELDS),
    8: ("subresource", TEXT),
}
META: Message = {
    1: ("name", TEXT),
    2: ("generateName", TEXT),
    3: ("namespace", TEXT),
    4: ("selfLink", TEXT),
    5: ("uid", TEXT),
    6: ("resourceVersion", TEXT),
    7: ("generation", NUMBER),
    8: ("creationTimestamp", TIME),
    9: ("deletionTimestamp", TIME),
    10: ("deletionGracePeriodSeconds", NUMBER),
    11: ("labels", TEXT_MAP),
    12: ("annotations", TEXT_MAP),
    13: ("ownerReferences", _list_of(OWNER)),
    14: ("finalizers", _list_of(TEXT)),
    17: ("managedFields", _list_of(MANAGED)),
}
REFERENCE: Message = {
    1: ("kind", TEXT),
    2: ("namespace", TEXT),
    3: ("name", TEXT),
    4: ("uid", TEXT),
    5: ("apiVersion", TEXT),
    6: ("resourceVersion", TEXT),
    7: ("fieldPath", TEXT),
}
EVENT: Message = {
    1: ("metadata", META),
    2: ("involvedObject", REFERENCE),
    3: ("reason", TEXT),
    4: ("message", TEXT),
    5: ("source", {1: ("component", TEXT), 2: ("host", TEXT)}),
    6: ("firstTimestamp", TIME),
    7: ("lastTimestamp", TIME),
    8: ("count", NUMBER),
    9: ("type", TEXT),
    10: ("eventTime", MICRO_TIME),
    11: ("series", {1: ("count", NUMBER), 2: ("lastObservedTime", MICRO_TIME)}),
    12: ("action", TEXT),
    13: ("related", REFERENCE),
    14: ("reportingComponent", TEXT),
    15: ("reportingInstance", TEXT),
}
EVENTS_EVENT: Message = {
    1: ("metadata", META),
    2: ("eventTime", MICRO_TIME),
    3: ("series", {1: ("count", NUMBER), 2: ("lastObservedTime", MICRO_TIME)}),
    4: ("reportingController", TEXT),
    5: ("reportingInstance", TEXT),
    6: ("action", TEXT),
    7: ("reason", TEXT),
    8: ("regarding", REFERENCE),
    9: ("related", REFERENCE),
    10: ("note", TEXT),
    11: ("type", TEXT),
    12: ("deprecatedSource", {1: ("component", TEXT), 2: ("host", TEXT)}),
    13: ("deprecatedFirstTimestamp", TIME),
    14: ("deprecatedLastTimestamp", TIME),
    15: ("deprecatedCount", NUMBER),
}
LEASE_SPEC: Message = {
    1: ("holderIdentity", OPTIONAL_TEXT),
    2: ("leaseDurationSeconds", NUMBER),
    3: ("acquireTime", MICRO_TIME),
    4: ("renewTime", MICRO_TIME),
    5: ("leaseTransitions", NUMBER),
    6: ("strategy", OPTIONAL_TEXT),
    7: ("preferredHolder", OPTIONAL_TEXT),
}
CONDITION: Message = {
    1: ("type", TEXT),
    2: ("status", TEXT),
    4: ("lastTransitionTime", TIME),
    5: ("reason", TEXT),
    6: ("message", TEXT),
}
ATTRIBUTES: Message = {
    1: ("namespace", TEXT),
    2: ("verb", TEXT),
    3: ("group", TEXT),
    4: ("version", TEXT),
    5: ("resource", TEXT),
    6: ("subresource", TEXT),
    7: ("name", TEXT),
}
ACCESS_SPEC: Message = {
    1: ("resourceAttributes", ATTRIBUTES),
    2: ("nonResourceAttributes", {1: ("path", TEXT), 2: ("verb", TEXT)}),
}
ACCESS_STATUS: Message = {
    1: ("allowed", BOOL),
    2: ("reason", TEXT),
    3: ("evaluationError", TEXT),
    4: ("denied", BOOL),
}
RESOURCE_RULE: Message = {
    1: ("verbs", _list_of(TEXT)),
    2: ("apiGroups", _list_of(TEXT)),
    3: ("resources", _list_of(TEXT)),
    4: ("resourceNames", _list_of(TEXT)),
}
POLICY_RULE: Message = {
    1: ("verbs", _list_of(TEXT)),
    2: ("apiGroups", _list_of(TEXT)),
    3: ("resources", _list_of(TEXT)),
    4: ("resourceNames", _list_of(TEXT)),
    5: ("nonResourceURLs", _list_of(TEXT)),
}
RULES_STATUS: Message = {
    1: ("resourceRules", _list_of(RESOURCE_RULE)),
    2: ("nonResourceRules", _list_of({1: ("verbs", _list_of(TEXT)), 2: ("nonResourceURLs", _list_of(TEXT))})),
    3: ("incomplete", BOOL),
    4: ("evaluationError", TEXT),
}
USER_INFO: Message = {
    1: ("username", TEXT),
    2: ("uid", TEXT),
    3: ("groups", _list_of(TEXT)),
    4: ("extra", LISTS_MAP),
}
LIST_META: Message = {
    1: ("selfLink", TEXT),
    2: ("resourceVersion", TEXT),
    3: ("continue", TEXT),
    4: ("remainingItemCount", NUMBER),
}
STATUS_DETAILS: Message = {
    1: ("name", TEXT),
    2: ("group", TEXT),
    3: ("kind", TEXT),
    4: ("causes", _list_of({1: ("reason", TEXT), 2: ("message", TEXT), 3: ("field", TEXT)})),
    5: ("retryAfterSeconds", NUMBER),
    6: ("uid", TEXT),
}
MESSAGES: dict[str, Message] = {
    "Namespace": {
        1: ("metadata", META),
        2: ("spec", {1: ("finalizers", _list_of(TEXT))}),
        3: ("status", {1: ("phase", TEXT), 2: ("conditions", _list_of(CONDITION))}),
    },
    "ConfigMap": {
        1: ("metadata", META),
        2: ("data", TEXT_MAP),
        3: ("binaryData", BASE64_MAP),
        4: ("immutable", BOOL),
    },
    "Secret": {
        1: ("metadata", META),
        2: ("data", BASE64_MAP),
        3: ("type", TEXT),
        4: ("stringData", TEXT_MAP),
        5: ("immutable", BOOL),
    },
    "Event": EVENT,
    "Event.events.k8s.io": EVENTS_EVENT,
    "Lease": {1: ("metadata", META), 2: ("spec", LEASE_SPEC)},
    "Role": {1: ("metadata", META), 2: ("rules", _list_of(POLICY_RULE))},
    "DeleteOptions": {
        1: ("gracePeriodSeconds", NUMBER),
        2: ("preconditions", {1: ("uid", OPTIONAL_TEXT), 2: ("resourceVersion", OPTIONAL_TEXT)}),
        3: ("orphanDependents", BOOL),
        4: ("propagationPolicy", TEXT),
        5: ("dryRun", _list_of(TEXT)),
    },
    "SelfSubjectReview": {1: ("metadata", META), 2: ("status", {1: ("userInfo", USER_INFO)})},
    "SelfSubjectAccessReview": {1: ("metadata", META), 2: ("spec", ACCESS_SPEC), 3: ("status", ACCESS_STATUS)},
    "SelfSubjectRulesReview": {
        1: ("metadata", META),
        2: ("spec", {1: ("namespace", TEXT)}),
        3: ("status", RULES_STATUS),
    },
    "Status": {
        1: ("metadata", LIST_META),
        2: ("status", TEXT),
        3: ("message", TEXT),
        4: ("reason", TEXT),
        5: ("details", STATUS_DETAILS),
        6: ("code", NUMBER),
    },
    "PartialObjectMetadata": {1: ("metadata", META)},
}
ENVELOPE: Message = {1: ("typeMeta", {1: ("apiVersion", TEXT), 2: ("kind", TEXT)}), 2: ("raw", "raw")}
MAGIC = b"k8s\x00"


def message_of(api_version: str, kind: str) -> Message | None:
    """Return the message of a kind, or None. The message of a list is derived from that of its items."""
    group = api_version.rpartition("/")[0]
    known = MESSAGES.get(f"{kind}.{group}") or MESSAGES.get(kind)
    if known is not None or not kind.endswith("List"):
        return known
    item = message_of(api_version, kind.removesuffix("List"))
    return None if item is None else {1: ("metadata", LIST_META), 2: ("items", _list_of(item))}
