"""Asks a real API server and Rota's registry the same, and tells where their answers differ."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import Any

import msgspec

from rota.api import KINDS, Kind
from rota.registry import Answer, ApiError, Registry, WriteOptions
from rota.registry.options import FieldValidation
from tests.kubernetes.server import Client, Response

Object = dict[str, Any]

MANAGER = "tester"
NAMESPACE = "default"


class Verdict(msgspec.Struct, frozen=True):
    """One answer, without what no two servers can have in common."""

    code: int
    reason: str = ""
    message: str = ""
    """Of refusals that do not list causes."""
    causes: frozenset[tuple[str, str, str]] = frozenset()
    """Reason, field and message of each."""
    about: tuple[tuple[str, Any], ...] = ()
    """What the refusal says it is about."""
    warnings: tuple[str, ...] = ()
    stored: Any = None


@dataclass
class Both:
    """The two servers, side by side."""

    client: Client
    registry: Registry
    asked: int = 0
    differing: list[str] = field(default_factory=list)

    async def create(self, obj: Object, *, validation: FieldValidation = "Warn", dry_run: bool = True) -> Verdict:
        """Make an object on both. Returns Kubernetes' verdict."""
        kind = KINDS[obj["kind"]]
        body = msgspec.json.encode(obj)
        response = self.client.send("POST", path_of(kind), body, **_query(validation, dry_run))
        options = WriteOptions(manager=MANAGER, dry_run=dry_run, field_validation=validation)
        try:
            mine = from_rota(await self.registry.create(kind, _namespace(kind), msgspec.json.decode(body), options), 201)
        except ApiError as error:
            mine = of(error.code, error.status())
        return self._compared(of_response(response), mine, obj)

    async def update(
        self,
        kind: Kind,
        theirs: Object,
        mine: Object,
        *,
        subresource: str = "",
        validation: FieldValidation = "Warn",
        dry_run: bool = True,
    ) -> Verdict:
        """Replace an object on both, each with what its own server knows. Returns Kubernetes' verdict."""
        name = theirs["metadata"]["name"]
        path = f"{path_of(kind)}/{name}" + (f"/{subresource}" if subresource else "")
        response = self.client.send("PUT", path, theirs, **_query(validation, dry_run))
        options = WriteOptions(manager=MANAGER, dry_run=dry_run, field_validation=validation)
        sent = msgspec.json.decode(msgspec.json.encode(mine))
        try:
            answer = await self.registry.update(kind, _namespace(kind), name, sent, options, subresource=subresource)
            verdict = from_rota(answer, 200)
        except ApiError as error:
            verdict = of(error.code, error.status())
        return self._compared(of_response(response), verdict, mine)

    def _compared(self, theirs: Verdict, mine: Verdict, obj: Object) -> Verdict:
        self.asked += 1
        if theirs != mine:
            self.differing.append(difference(theirs, mine))
        return theirs


def path_of(kind: Kind) -> str:
    """The path of a kind's collection."""
    root = f"/apis/{kind.group}/{kind.version}" if kind.group else f"/api/{kind.version}"
    return f"{root}/namespaces/{NAMESPACE}/{kind.plural}" if kind.namespaced else f"{root}/{kind.plural}"


def _namespace(kind: Kind) -> str:
    return NAMESPACE if kind.namespaced else ""


def _query(validation: FieldValidation, dry_run: bool) -> dict[str, str]:
    query = {"fieldManager": MANAGER, "fieldValidation": validation}
    return {**query, "dryRun": "All"} if dry_run else query


def of_response(response: Response) -> Verdict:
    return of(response.code, response.body, response.warnings)


def from_rota(answer: Answer, code: int) -> Verdict:
    return of(code, msgspec.json.decode(answer.value), answer.warnings)


def of(code: int, body: Any, warnings: tuple[str, ...] = ()) -> Verdict:
    """The verdict that an answer comes to."""
    if not isinstance(body, dict) or body.get("kind") != "Status":
        return Verdict(code, stored=settled(body), warnings=tuple(sorted(warnings)))
    details = body.get("details") or {}
    causes = frozenset((c["reason"], c.get("field", ""), c["message"]) for c in details.get("causes", ()))
    about = tuple(sorted((k, v) for k, v in details.items() if k != "causes"))
    message = "" if causes else body.get("message", "")
    return Verdict(code, body.get("reason", ""), message, causes, about)


def settled(obj: Any) -> Any:
    """An object without its identity, times and version."""
    if not isinstance(obj, dict):
        return obj
    out = copy.deepcopy(obj)
    for name in ("uid", "resourceVersion", "creationTimestamp"):
        out["metadata"].pop(name, None)
    for entry in out["metadata"].get("managedFields", ()):
        entry.pop("time", None)
    return out


def difference(theirs: Verdict, mine: Verdict) -> str:
    """Where two verdicts differ, for people."""
    lines = []
    for name in ("code", "reason", "message", "about", "warnings", "stored"):
        left, right = getattr(theirs, name), getattr(mine, name)
        if left != right:
            lines += [f"  kubernetes {name}: {left}", f"  rota       {name}: {right}"]
    lines += [f"  kubernetes only: {cause}" for cause in sorted(theirs.causes - mine.causes)]
    lines += [f"  rota only:       {cause}" for cause in sorted(mine.causes - theirs.causes)]
    return "\n".join(lines)
