"""`events.k8s.io/v1`: Events under the names that newer recorders and readers use. Stored as core Events."""

from typing import Annotated

from msgspec import field

from rota.api.core import Event, EventSeries, EventSource, ObjectReference
from rota.api.kind import Kind
from rota.api.meta import Object
from rota.api.model import Text, Time, Value, doc


class EventsEvent(Object):
    """Something a person should notice, in the form of `events.k8s.io/v1`."""

    event_time: Annotated[Time | None, doc("When, to the microsecond.")] = None
    series: Annotated[EventSeries | None, doc("How often, when it repeats.")] = None
    reporting_controller: Annotated[Text | None, doc("The controller that reported it.")] = None
    reporting_instance: Annotated[Text | None, doc("The process that reported it.")] = None
    action: Annotated[Text | None, doc("What was done about it.")] = None
    reason: Annotated[Text | None, doc("What happened, as one word.")] = None
    regarding: Annotated[ObjectReference, doc("What it is about.", atomic=True)] = field(
        default_factory=ObjectReference
    )
    related: Annotated[ObjectReference | None, doc("A second object it is about.", atomic=True)] = None
    note: Annotated[Value | None, doc("What happened, as a sentence.")] = None
    type: Annotated[Text | None, doc("Normal or Warning.")] = None
    deprecated_source: Annotated[EventSource | None, doc("Who reported it, in a core Event.")] = None
    deprecated_first_timestamp: Annotated[Time | None, doc("When first, in a core Event.")] = None
    deprecated_last_timestamp: Annotated[Time | None, doc("When last, in a core Event.")] = None
    deprecated_count: Annotated[int | None, doc("How many times, in a core Event.")] = None


RENAMED = {
    "regarding": "involvedObject",
    "note": "message",
    "reportingController": "reportingComponent",
    "deprecatedSource": "source",
    "deprecatedFirstTimestamp": "firstTimestamp",
    "deprecatedLastTimestamp": "lastTimestamp",
    "deprecatedCount": "count",
}
REFERENCE_FIELDS = ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")

EVENTS_EVENT = EventsEvent.api = Kind(
    name="Event",
    plural="events",
    type=EventsEvent,
    group="events.k8s.io",
    version="v1",
    short_names=("ev",),
    columns=Event.api.columns,
    has_status=False,
    selected_at={
        **{f"regarding.{name}": (f".involvedObject.{name}",) for name in REFERENCE_FIELDS},
        "reportingController": (".reportingComponent",),
        "reason": (".reason",),
        "type": (".type",),
    },
    custom=False,
    stored=Event.api,
    renamed=RENAMED,
)
