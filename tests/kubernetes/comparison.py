"""Asks a real API server and a Rota server the same, over HTTPS, and tells where their answers differ."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import msgspec

from rota.api import KINDS, Kind
from rota.api.served import OTHER_VERSIONS
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
        kind = OTHER_VERSIONS.get((obj.get("apiVersion", ""), obj["kind"])) or KINDS[obj["kind"]]
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

    async def ask(self, what: str, method: str, path: str, body: Any = None, **more: Any) -> Verdict:
        """Send the same to both. Returns Kubernetes' verdict. `more`: as for `Client.send`."""
        theirs = self.client.send(method, path, body, **more)
        mine = self.rota.send(method, path, body, **more)
        if theirs.code == 500 and theirs.body["message"].startswith("failed to create typed patch object"):
            # What cannot be merged is the mistake of who sent it.
            assert 400 <= mine.code < 500, mine
            return of_response(theirs)
        return self._compared(f"{method} {path} {what}", of_response(theirs), of_response(mine))

    def have(self, kind: Kind, name: str, **parts: Any) -> str:
        """Make an object on both, for what follows. Returns its path."""
        obj = {"apiVersion": kind.api_version, "kind": kind.name, "metadata": {"name": name}, **parts}
        path = f"{path_of(kind)}/{name}"
        for server in (self.client, self.rota):
            answer = server.send("POST", path_of(kind), obj, fieldManager=MANAGER)
            assert answer.code == 201, answer.body
        self.made.append(path)
        return path

    def _live(self, kind: Kind, name: str) -> tuple[Object, Object]:
        """The object as each server has it."""
        path = f"{path_of(kind)}/{name}"
        if path not in self.live:
            self.live[path] = self.client.send("GET", path).body, self.rota.send("GET", path).body
        return self.live[path]

    def _compared(self, what: str, theirs: Verdict, mine: Verdict) -> Verdict:
        self.asked += 1
        if UNSPECIFIC.search(theirs.message):
            mine = msgspec.structs.replace(mine, message=theirs.message)
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


def _query(validation: FieldValidation, dry_run: bool) -> dict[str, Any]:
    query = {"fieldManager": MANAGER, "fieldValidation": validation}
    return {**query, "dryRun": "All"} if dry_run else query


def of_response(response: Response) -> Verdict:
    return of(response.code, response.body, response.warnings)


def of(code: int, body: Any, warnings: tuple[str, ...] = ()) -> Verdict:
    """The verdict that an answer comes to."""
    if isinstance(body, str) and body.startswith("404 page not found"):
        return Verdict(404, "NotFound", "the server could not find the requested resource")
    if not isinstance(body, dict) or body.get("kind") != "Status":
        return Verdict(code, stored=settled(body), warnings=tuple(sorted(warnings)))
    details = body.get("details") or {}
    causes = frozenset(map(_cause, details.get("causes", ())))
    about = tuple(sorted((k, v) for k, v in details.items() if k not in ("causes", "uid")))
    said = RECORD.sub("in record", body.get("message", ""))
    message = "" if causes or VERSION_DEPENDENT.search(said) else said
    # Of an object that is not even of its kind, Kubernetes warns of what another kind does not have.
    return Verdict(code, body.get("reason", ""), message, causes, about, tuple(sorted(warnings)) if causes else ())


def _cause(cause: Object) -> tuple[str, str, str]:
    """Return a cause, without the message if it is of metadata: that differs between versions of Kubernetes."""
    field, message = cause.get("field", ""), cause["message"]
    if field == "patch":
        # Kubernetes repeats the whole object there, secrets and all, and then tells of Go's types.
        _, strict, message = message.rpartition("strict decoding error")
        message = message if strict else ""
    return cause["reason"], field, "" if field.startswith("metadata.") else message


VERSION_DEPENDENT = re.compile(
    "cannot be handled as a (?!.*strict decoding)|Object 'Kind' is missing|UID in precondition|json: |GroupVersion"
    "|does not match the expected API version|accessor error|(?i:invalid JSON patch)|the body is not (JSON|YAML)"
    "|yaml: |(was|were) expected, not|json parse error|strconv|must be a number of 64 bits|is registered for version"
)
"""Refusals that tell of Go's types or of the storage rather than of the object."""


UNSPECIFIC = re.compile("the server rejected our request due to an error in our request|^[0-9]{3}: [A-Z]")
"""Where Kubernetes says nothing that the code does not say, Rota may say more."""
RECORD = re.compile(r"in record \([^)]*\)")
IDENTITY = ("uid", "resourceVersion", "creationTimestamp", "deletionTimestamp")


def settled(obj: Any) -> Any:
    """An object without its identity, times and version; a list of such objects."""
    if not isinstance(obj, dict):
        return obj
    out = copy.deepcopy(obj)
    if isinstance(out.get("items"), list):
        # Of Kubernetes' own kinds it leaves out what the list says.
        said = {"apiVersion": out.get("apiVersion"), "kind": str(out.get("kind")).removesuffix("List")}
        out["items"] = [{**said, **settled(item)} for item in out["items"]]
    if not isinstance(out.get("metadata"), dict):
        return out
    for name in (*IDENTITY, "continue"):
        out["metadata"].pop(name, None)
    entries = out["metadata"].get("managedFields", [])
    for entry in entries:
        entry.pop("time", None)
    # They are in the order of their times.
    entries.sort(key=lambda entry: (entry["manager"], entry["operation"], entry.get("subresource", "")))
    return out
