"""Asks a real API server and a Rota server the same, over HTTPS, and tells where their answers differ."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import msgspec

from rota.api import KINDS, Kind
from rota.registry.options import FieldValidation
from tests.kubernetes import differences
from tests.kubernetes.server import Client, Response
from tests.kubernetes.verdict import Verdict

Object = dict[str, Any]
Change = Callable[[Object], None]

MANAGER = "tester"
NAMESPACE = "default"


@dataclass
class Both:
    """The two servers, side by side."""

    client: Client
    rota: Client
    asked: int = 0
    unexplained: list[str] = field(default_factory=list)
    explained: set[str] = field(default_factory=set)
    made: list[str] = field(default_factory=list)
    live: dict[str, tuple[Object, Object]] = field(default_factory=dict)

    async def create(
        self, what: str, obj: Object, *, validation: FieldValidation = "Warn", dry_run: bool = True
    ) -> Verdict:
        """Make an object on both. Returns Kubernetes' verdict."""
        kind = KINDS[obj["kind"]]
        body = msgspec.json.encode(obj)
        response = self.client.send("POST", path_of(kind), body, **_query(validation, dry_run))
        if response.code == 201 and not dry_run:
            self.made.append(f"{path_of(kind)}/{response.body['metadata']['name']}")
        mine = of_response(self.rota.send("POST", path_of(kind), body, **_query(validation, dry_run)))
        theirs = of_response(response)
        if prefix := _generated_from(obj):
            theirs, mine = theirs.named(prefix), mine.named(prefix)
        return self._compared(f"create {kind.name}: {what}", theirs, mine)

    async def update(
        self,
        what: str,
        kind: Kind,
        name: str,
        change: Change,
        *,
        subresource: str = "",
        validation: FieldValidation = "Warn",
        dry_run: bool = True,
    ) -> Verdict:
        """Change an object as each server has it, and send it back. Returns Kubernetes' verdict."""
        path = f"{path_of(kind)}/{name}"
        theirs, mine = copy.deepcopy(self._live(kind, name))
        change(theirs)
        change(mine)
        suffix = f"/{subresource}" if subresource else ""
        response = self.client.send("PUT", path + suffix, theirs, **_query(validation, dry_run))
        answer = self.rota.send("PUT", path + suffix, mine, **_query(validation, dry_run))
        if not dry_run:
            self.live.pop(path, None)
        return self._compared(f"update {kind.name}{suffix}: {what}", of_response(response), of_response(answer))

    def _live(self, kind: Kind, name: str) -> tuple[Object, Object]:
        """The object as each server has it."""
        path = f"{path_of(kind)}/{name}"
        if path not in self.live:
            self.live[path] = self.client.send("GET", path).body, self.rota.send("GET", path).body
        return self.live[path]

    def _compared(self, what: str, theirs: Verdict, mine: Verdict) -> Verdict:
        self.asked += 1
        if theirs != mine:
            known = differences.explanation(theirs, mine)
            if known is None:
                self.unexplained.append(f"{what}\n{theirs.against(mine)}")
            else:
                self.explained.add(known)
        return theirs

    def forget(self) -> None:
        """Delete what was made."""
        for path in self.made:
            self.client.send("DELETE", path)
            self.rota.send("DELETE", path)


def _generated_from(obj: Object) -> str:
    """The prefix of a name that the server has to generate."""
    metadata = obj.get("metadata")
    return "" if not isinstance(metadata, dict) or metadata.get("name") else metadata.get("generateName") or ""


def path_of(kind: Kind) -> str:
    """The path of a kind's collection."""
    root = f"/apis/{kind.group}/{kind.version}" if kind.group else f"/api/{kind.version}"
    return f"{root}/namespaces/{NAMESPACE}/{kind.plural}" if kind.namespaced else f"{root}/{kind.plural}"


def _query(validation: FieldValidation, dry_run: bool) -> dict[str, str]:
    query = {"fieldManager": MANAGER, "fieldValidation": validation}
    return {**query, "dryRun": "All"} if dry_run else query


def of_response(response: Response) -> Verdict:
    return of(response.code, response.body, response.warnings)


def of(code: int, body: Any, warnings: tuple[str, ...] = ()) -> Verdict:
    """The verdict that an answer comes to."""
    if not isinstance(body, dict) or body.get("kind") != "Status":
        return Verdict(code, stored=settled(body), warnings=tuple(sorted(warnings)))
    details = body.get("details") or {}
    causes = frozenset(map(_cause, details.get("causes", ())))
    about = tuple(sorted((k, v) for k, v in details.items() if k != "causes"))
    message = "" if causes or VERSION_DEPENDENT.search(body["message"]) else body["message"]
    return Verdict(code, body.get("reason", ""), message, causes, about)


def _cause(cause: Object) -> tuple[str, str, str]:
    """What is said of metadata is worded differently from one version of Kubernetes to the next."""
    field = cause.get("field", "")
    return cause["reason"], field, "" if field.startswith("metadata.") else cause["message"]


VERSION_DEPENDENT = re.compile(
    "cannot be handled as a (?!.*strict decoding)|Object 'Kind' is missing|UID in precondition|json: |GroupVersion"
    "|does not match the expected API version|accessor error"
)
"""Refusals that tell of Go's types or of the storage rather than of the object."""


def settled(obj: Any) -> Any:
    """An object without its identity, times and version."""
    if not isinstance(obj, dict):
        return obj
    out = copy.deepcopy(obj)
    for name in ("uid", "resourceVersion", "creationTimestamp", "deletionTimestamp"):
        out["metadata"].pop(name, None)
    entries = out["metadata"].get("managedFields", [])
    for entry in entries:
        entry.pop("time", None)
    # They are in the order of their times.
    entries.sort(key=lambda entry: (entry["manager"], entry["operation"], entry.get("subresource", "")))
    return out
