"""`events.k8s.io/v1`: Events under the names that newer recorders and readers use. Stored as core Events."""

from typing import Annotated

from msgspec import field

from rota.api.core import Event, EventSeries, EventSource, ObjectReference
from rota.api.kind import Kind
from rota.api.meta import Object
from rota.api.model import Text, Time, Value, doc


class EventsEvent(Object):
    """A report of something that happened to an object, in the form of `events.k8s.io/v1`."""

    event_time: Annotated[Time | None, doc("Time of the event, in microseconds.")] = None
    series: Annotated[EventSeries | None, doc("Occurrences of a repeated event.")] = None
    reporting_controller: Annotated[Text | None, doc("Controller that reported the event.")] = None
    reporting_instance: Annotated[Text | None, doc("Process that reported the event.")] = None
    action: Annotated[Text | None, doc("Action that was taken.")] = None
    reason: Annotated[Text | None, doc("Machine-readable reason, in CamelCase.")] = None
    regarding: Annotated[ObjectReference, doc("Object that the event is about.", atomic=True)] = field(
        default_factory=ObjectReference
    )
    related: Annotated[ObjectReference | None, doc("Secondary object that the event is about.", atomic=True)] = None
    note: Annotated[Value | None, doc("Human-readable message.")] = None
    type: Annotated[Text | None, doc("Type of the event: Normal or Warning.")] = None
    deprecated_source: Annotated[EventSource | None, doc("Field source of a core Event.")] = None
    deprecated_first_timestamp: Annotated[Time | None, doc("Field firstTimestamp of a core Event.")] = None
    deprecated_last_timestamp: Annotated[Time | None, doc("Field lastTimestamp of a core Event.")] = None
    deprecated_count: Annotated[int | None, doc("Field count of a core Event.")] = None


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
