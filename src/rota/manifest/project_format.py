"""The format of the project file: its sections, and the fields of their entries.

An entry has a `name:` and the fields of its kind's spec. This module holds the differences from that; everything else
follows from the kinds.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from rota.api import AgentConfig, Function, Kind, Schedule, WorkerPool, Workload, Workspace
from rota.api.schema import Schema, object_schema

FILE_NAME = "rota.yaml"
PROJECT_LABEL = "rota.dev/project"
CREATED_ANNOTATION = "rota.dev/created-by-project"
"""The annotation of objects that a deploy created. Pruning deletes no others."""
ENTRIES_MAX = 10_000
"""Entries of a section, or schedules of a function."""
NAME_PATTERN = "^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$"
"""The pattern of names: without dots, so that FUNCTION.SCHEDULE is unambiguous."""
NAME_RULE = "a name has 1 to 63 lower case letters, digits and '-', with a letter or digit at both ends"
NAME: Schema = {"type": "string", "pattern": NAME_PATTERN, "description": "Its name."}
PROJECT_NAME: Schema = {**NAME, "description": "The project's name. Everything of it is labelled with it."}
PATH: Schema = {
    "type": "string",
    "minLength": 1,
    "maxLength": 1024,
    "description": "The folder or file with the code, relative to the project file. It is packed and sent on deploy.",
}
CODE_FIELDS = ("runtime", "entrypoint", "command", "path", "source")
"""The fields that define a function's code. An entry without any of them changes an existing function."""
SCHEDULES, SCHEDULERS = "schedules", "schedulers"


@dataclass(frozen=True, eq=False)
class Section:
    """A list of entries that become objects of one kind."""

    kind: Kind
    description: str
    own: dict[str, Schema] = field(default_factory=dict)
    """Fields that the kind's spec does not have, or has elsewhere."""
    without: tuple[str, ...] = ()
    """Fields of the spec that are derived and may not be written."""
    required: tuple[str, ...] = ()

    @property
    def spec(self) -> Schema:
        schema: Schema = object_schema(self.kind)["properties"]["spec"]
        return schema

    @property
    def fields(self) -> dict[str, Schema]:
        """The spec fields that an entry may have."""
        return {name: prop for name, prop in self.spec["properties"].items() if name not in self.without}

    @property
    def properties(self) -> dict[str, Schema]:
        """All fields that an entry may have."""
        return {"name": NAME, **self.own, **self.fields}


def _task_template() -> Schema:
    schema: Schema = object_schema(Schedule.api)["properties"]["spec"]["properties"]["target"]["properties"][
        "taskTemplate"
    ]
    return schema


NESTED = Section(Schedule.api, "When the function is called.", without=("target",), required=("cron",))
"""Schedules of a function."""
SECTIONS: dict[str, Section] = {
    "workspaces": Section(Workspace.api, "What workers are prepared with.", required=("repo",)),
    "agents": Section(AgentConfig.api, "What the agents of workers get."),
    "pools": Section(WorkerPool.api, "Warm workers."),
    "workloads": Section(Workload.api, "Services, and the cities that they run in."),
    "functions": Section(Function.api, "Code with a handler, and when it is called.", own={"path": PATH}),
    SCHEDULES: Section(
        Schedule.api,
        "Tasks by the clock. Calls of functions are declared with the function.",
        own={"taskTemplate": _task_template()},
        without=("target",),
        required=("cron", "taskTemplate"),
    ),
}
"""The sections, in the order in which their objects are created."""
NESTED_KEYS = (SCHEDULES, SCHEDULERS)


def keys_of(name: str) -> list[str]:
    """Return the keys that an entry of a section may have."""
    keys = list(SECTIONS[name].properties)
    return [*keys, *NESTED_KEYS] if name == "functions" else keys
