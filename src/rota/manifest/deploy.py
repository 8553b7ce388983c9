"""Deploy a project to a server, idempotently: a second deploy finds nothing to do.

Promises: everything is read, compared and dry-run on the server before the first write; only declared fields that
differ are written; the next deploy finishes an interrupted one; without `prune` nothing is deleted, and with it only
objects that a deploy created and that carry this project's label.

Never: replaces an object by a new one of the same name, or resets a field that the file no longer has.
"""

from __future__ import annotations

import asyncio
import contextlib
import shlex
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from typing import Any, Literal

import msgspec

from rota.api import ConfigMap, Function, Kind, Namespace
from rota.client import Client
from rota.engine.references import Graph, shown
from rota.manifest.code_stores import (
    BlobCodeStore,
    BlobStore,
    CodeRefused,
    CodeStore,
    ConfigMapCodeStore,
    code_of,
    codes_in_use,
)
from rota.manifest.deploy_diff import DECLARED_PARTS, Change, canonical, diff, json_patch
from rota.manifest.deploy_lookup import IncompleteList, MissingReference, find, find_missing_references, list_all
from rota.manifest.load import Manifest
from rota.manifest.project import Project
from rota.manifest.project_format import CREATED_ANNOTATION, PROJECT_LABEL, SECTIONS
from rota.registry import ApiError

Json = dict[str, Any]
Outcome = Literal["created", "updated", "unchanged"]

MANAGER = "rota-deploy"
"""The field manager of deploys."""
READS_AT_ONCE_MAX = 16
NAMESPACES_NAMED_MAX = 20
TRIES_MAX = 8
"""Attempts to write one object while other clients change it."""
PRUNABLE_KINDS: tuple[Kind, ...] = tuple(dict.fromkeys(section.kind for section in reversed(SECTIONS.values())))
"""The kinds that a project can have objects of, referrers before what they refer to."""


class DeployRefused(Exception):  # noqa: N818 - says what became of it
    """All reasons why a deploy changes nothing."""

    def __init__(self, reasons: Sequence[str]) -> None:
        super().__init__("\n".join(reasons))
        self.reasons = list(reasons)


@dataclass(frozen=True, slots=True)
class Step:
    """One declared object, its live form if it exists, and the changes to make."""

    manifest: Manifest
    live: Json | None
    changes: list[Change]

    @property
    def outcome(self) -> Outcome:
        return "created" if self.live is None else "updated" if self.changes else "unchanged"

    @property
    def kind(self) -> Kind:
        return self.manifest.kind

    @property
    def name(self) -> str:
        return self.manifest.name


@dataclass(frozen=True, slots=True)
class Removal:
    """An object of the project that its file no longer declares."""

    kind: Kind
    name: str
    uid: str
    code: str = ""
    """The short digest of the code that it holds, if it holds code."""
    created: bool = True
    """True if a deploy created it, so that it is deleted; else only the project's label is removed."""

    @property
    def outcome(self) -> Literal["deleted", "released"]:
        return "deleted" if self.created else "released"


@dataclass(frozen=True, slots=True)
class Deployment:
    """The plan of a deploy, in the order in which it is applied."""

    project: Project
    steps: list[Step]
    """All objects of the file, each after the objects that it refers to."""
    removals: list[Removal]
    missing: list[str]
    """Digests of code that the server does not have."""
    take_over: bool
    """Make objects of other projects this project's."""
    missing_references: list[MissingReference] = field(default_factory=list)
    """References of the steps that neither the file nor the server satisfies."""
    unpruned: list[Removal] = field(default_factory=list)
    """Objects that the file no longer declares and that stay, because this deploy does not prune."""

    @property
    def writes(self) -> int:
        return len(self.removals) + sum(step.outcome != "unchanged" for step in self.steps)

    def report(self, on_done: Callable[[Step | Removal], None]) -> None:
        """Call `on_done` for each object, as `Deployer.apply` would."""
        for step in self.steps:
            on_done(step)
        for removal in self.removals:
            on_done(removal)


class Deployer:
    """Deploys projects to one server and namespace. Without `blobs`, code is stored in ConfigMaps."""

    def __init__(self, client: Client, blobs: BlobStore | None) -> None:
        self._client = Client(client.backend, manager=MANAGER, namespace=client.namespace)
        self._code: CodeStore = ConfigMapCodeStore(self._client) if blobs is None else BlobCodeStore(blobs)

    # Planning.

    async def plan(self, project: Project, *, prune: bool = False, take_over: bool = False) -> Deployment:
        """Plan a deploy. Raises `DeployRefused` with everything that the server would refuse."""
        refused: list[str] = []
        live_objects = await self._read_live(project)
        steps: list[Step] = []
        for manifest, live in zip(project.manifests, live_objects, strict=True):
            why = _reason_not_to_write(project, manifest, live, take_over=take_over)
            if why:
                refused.append(_located(manifest, why))
            else:
                steps.append(make_step(manifest, live))
        refused += await self._unknown_functions(project)
        planned: list[tuple[Step, Json]] = []
        if not refused:
            for step in steps:
                try:
                    planned.append(await self._dry_run(step, project, take_over=take_over))
                except ApiError as error:
                    if (error.details or {}).get("kind") == Namespace.api.plural:
                        # The same error would repeat for every object.
                        raise DeployRefused([f"{project.source}: {await self._describe_missing_namespace()}"]) from None
                    refused.append(_located(step.manifest, error.message))
        if refused:
            raise DeployRefused(refused)
        missing = await self._find_missing_code(project)
        removals = await self._find_removals(project) if prune else []
        if prune:
            removals += await self._find_code_removals(project, planned, removals)
        refused += [why for one in removals if (why := await self._removal_error(one, project))]
        if refused:
            raise DeployRefused(refused)
        graph, known = _graph(planned)
        deleted = {one.kind.key(self._client.namespace, one.name) for one in removals if one.created}
        references = await find_missing_references(self._client, graph, known, deleted)
        unpruned = [] if prune else await self._find_unpruned(project)
        return Deployment(project, in_dependency_order(planned), removals, missing, take_over, references, unpruned)

    async def _find_unpruned(self, project: Project) -> list[Removal]:
        """Return what pruning would remove; nothing if it cannot be read, because the deploy does not depend on it."""
        try:
            return await self._find_removals(project)
        except (ApiError, IncompleteList):
            return []

    async def _read_live(self, project: Project) -> list[Json | None]:
        slots = asyncio.Semaphore(READS_AT_ONCE_MAX)

        async def read(manifest: Manifest) -> Json | None:
            async with slots:
                return await find(self._client, manifest.kind, manifest.name)

        return await asyncio.gather(*map(read, project.manifests))

    async def _unknown_functions(self, project: Project) -> list[str]:
        """Return an error for each function that is only named and does not exist or is being deleted."""
        found: list[str] = []
        for name, line in project.mentioned.items():
            at = f'{project.source}:{line}: Function "{name}"'
            live = await find(self._client, Function.api, name)
            if live is None:
                found.append(
                    f"{at} is neither on the server nor declared here: correct its name, or give it entrypoint and path"
                )
            elif live["metadata"].get("deletionTimestamp"):
                found.append(f"{at} is being deleted")
        return found

    async def _dry_run(self, step: Step, project: Project, *, take_over: bool) -> tuple[Step, Json]:
        """Dry-run a step. Returns the step to apply and the object that the server would store."""
        step, after = await self._write(step, project, take_over=take_over, dry_run=True)
        if step.live is not None and _declared_fields(after) == _declared_fields(step.live):
            # The declaration only spells the live value differently.
            step = replace(step, changes=[])
        return step, after

    async def _describe_missing_namespace(self) -> str:
        name = self._client.namespace
        manifest = f"{{apiVersion: v1, kind: Namespace, metadata: {{name: {name}}}}}"
        how = f"`echo {shlex.quote(manifest)} | rota apply -f -`"
        there: list[str] = []
        with contextlib.suppress(ApiError):  # Listing may not be allowed.
            page = await self._client.list(Namespace.api, limit=NAMESPACES_NAMED_MAX)
            there = [one["metadata"]["name"] for one in page.items]
        near = get_close_matches(name, there, 1)
        meant = f"; did you mean {near[0]}?" if near else ""
        others = f" ({', '.join(there)})" if there else ""
        return f'there is no namespace "{name}"{meant}; choose another with -n{others}, or make it: {how}'

    async def _find_missing_code(self, project: Project) -> list[str]:
        missing: list[str] = []
        refused: list[str] = []
        for digest, packed in project.packs.items():
            try:
                if not await self._code.has(packed, project.name):
                    missing.append(digest)
            except CodeRefused as error:
                refused.append(f"{project.places[digest]}: {error}")
        if refused:
            raise DeployRefused(refused)
        return missing

    async def _find_removals(self, project: Project) -> list[Removal]:
        kept = {(manifest.kind, manifest.name) for manifest in project.manifests}
        kept |= {(Function.api, name) for name in project.mentioned}
        found: list[Removal] = []
        for kind in PRUNABLE_KINDS:
            for obj in await list_all(self._client, kind, f"{PROJECT_LABEL}={project.name}"):
                meta = obj["metadata"]
                if (kind, meta["name"]) not in kept and not meta.get("deletionTimestamp"):
                    created = CREATED_ANNOTATION in meta.get("annotations", {})
                    found.append(Removal(kind, meta["name"], meta["uid"], created=created))
        return found

    async def _find_code_removals(
        self, project: Project, planned: Iterable[tuple[Step, Json]], removals: Iterable[Removal]
    ) -> list[Removal]:
        """Return the objects with code that no function refers to once the deploy is applied."""
        stored = [obj for obj in await self._code.objects(project.name) if not obj["metadata"].get("deletionTimestamp")]
        if not stored:
            return []
        after = {step.name: obj for step, obj in planned if step.kind is Function.api}
        deleted = {one.uid for one in removals if one.created}
        remaining = [obj for obj in await list_all(self._client, Function.api) if obj["metadata"]["uid"] not in deleted]
        used = codes_in_use([*after.values(), *(obj for obj in remaining if obj["metadata"]["name"] not in after)])
        return [
            Removal(ConfigMap.api, obj["metadata"]["name"], obj["metadata"]["uid"], code_of(obj))
            for obj in stored
            if code_of(obj) not in used
        ]

    async def _removal_error(self, removal: Removal, project: Project) -> str:
        """Dry-run a removal. Returns the server's error, or an empty text."""
        try:
            await self._remove(removal, project.name, dry_run=True)
        except ApiError as error:
            return f"{project.source}: {error.message}"
        return ""

    # Applying.

    async def apply(self, deployment: Deployment, on_done: Callable[[Step | Removal], None]) -> None:
        """Carry out a plan. Calls `on_done` after each object."""
        project = deployment.project
        for digest in deployment.missing:
            try:
                await self._code.put(project.packs[digest], project.name)
            except CodeRefused as error:
                raise DeployRefused([f"{project.places[digest]}: {error}"]) from None
        for step in deployment.steps:
            done, _ = await self._write(step, project, take_over=deployment.take_over, dry_run=False)
            on_done(done)
        for removal in deployment.removals:
            if not removal.code:
                await self._remove(removal, project.name, dry_run=False)
                on_done(removal)
        code = [removal for removal in deployment.removals if removal.code]
        # Another deploy may have started to use this code since the plan was made.
        used = codes_in_use(await list_all(self._client, Function.api)) if code else set()
        for removal in code:
            if removal.code not in used:
                await self._remove(removal, project.name, dry_run=False)
                on_done(removal)

    async def _write(self, step: Step, project: Project, *, take_over: bool, dry_run: bool) -> tuple[Step, Json]:
        """Write one object. Returns the step that was applied, after retries, and the stored object."""
        manifest = step.manifest
        for tries_left in reversed(range(TRIES_MAX)):
            try:
                return step, await self._written(step, project, dry_run=dry_run)
            except ApiError as error:
                if error.code not in (404, 409, 422) or not tries_left:
                    raise
                live = await find(self._client, manifest.kind, manifest.name)
                # Another client may have deleted it, or another project created it.
                why = _reason_not_to_write(project, manifest, live, take_over=take_over)
                if why:
                    raise DeployRefused([_located(manifest, why)]) from None
                fresh = make_step(manifest, live)
                if error.code != 409 and _identity(fresh) == _identity(step):
                    raise
                step = fresh
        raise AssertionError("the last try ends it")

    async def _written(self, step: Step, project: Project, *, dry_run: bool) -> Json:
        if step.live is None:
            return await self._client.create(_created_by(project, step.manifest.object), dry_run=dry_run)
        if not step.changes:
            return step.live
        patch = json_patch(step.changes, step.live["metadata"]["uid"])
        return await self._client.patch(step.kind, step.name, patch, type="json", dry_run=dry_run)

    async def _remove(self, removal: Removal, project: str, *, dry_run: bool) -> None:
        kind, name, uid = removal.kind, removal.name, removal.uid
        try:
            if removal.created:
                await self._client.delete(kind, name, uid=uid, propagation="Background", dry_run=dry_run)
            else:
                await self._client.patch(kind, name, _unlabelled(uid, project), type="json", dry_run=dry_run)
        except ApiError as error:
            # The object is gone, or is a new one of the same name, which the user was not shown.
            if not error.is_overtaken and (removal.created or error.code != 422):
                raise


def _created_by(project: Project, obj: Json) -> Json:
    meta = obj["metadata"]
    return {
        **obj,
        "metadata": {**meta, "annotations": {**meta.get("annotations", {}), CREATED_ANNOTATION: project.name}},
    }


def _unlabelled(uid: str, project: str) -> list[Json]:
    """Return a JSON patch that removes the project's label. It fails if the object or its label has been replaced."""
    path = f"/metadata/labels/{PROJECT_LABEL.replace('/', '~1')}"
    return [
        {"op": "test", "path": "/metadata/uid", "value": uid},
        {"op": "test", "path": path, "value": project},
        {"op": "remove", "path": path},
    ]


def _located(manifest: Manifest, why: str) -> str:
    return f"{manifest.source}:{manifest.line_number}: {why}"


def make_step(manifest: Manifest, live: Json | None) -> Step:
    return Step(manifest, live, [] if live is None else diff(manifest.kind, manifest.object, live))


def _identity(step: Step) -> Any:
    return (step.live or {}).get("metadata", {}).get("uid"), step.changes


def _declared_fields(obj: Json) -> bytes:
    meta = obj["metadata"]
    parts = {name: obj.get(name) for name in DECLARED_PARTS if name != "metadata"}
    return canonical({**parts, "labels": meta.get("labels"), "annotations": meta.get("annotations")})


def _reason_not_to_write(project: Project, manifest: Manifest, live: Json | None, *, take_over: bool) -> str:
    """Return the reason not to write an object, as far as it can be known without a dry run; empty if there is none."""
    what = f'{manifest.kind.name} "{manifest.name}"'
    if live is None:
        if manifest.kind is Function.api and manifest.name in project.partial:
            return f"{what} is not on the server, and too little is said here to make it: give entrypoint and path"
        return ""
    meta = live["metadata"]
    if meta.get("deletionTimestamp"):
        return f"{what} is being deleted; deploy again when it is gone"
    owner = (meta.get("labels") or {}).get(PROJECT_LABEL, project.name)
    if owner != project.name and not take_over:
        return (
            f"{what} is of the project {owner}; choose another name, or another namespace with -n, or take it over "
            "with `rota deploy --take-over`"
        )
    return ""


def _graph(planned: Iterable[tuple[Step, Json]]) -> tuple[Graph, dict[str, Step]]:
    """Return the references between the planned objects, and the steps by id."""
    graph = Graph()
    steps: dict[str, Step] = {}
    for step, obj in planned:
        steps[step.kind.key(obj["metadata"].get("namespace", ""), step.name)] = step
        # A newer server may return values that are unknown here. Such an object keeps its place in the file's order.
        with contextlib.suppress(msgspec.ValidationError):
            graph.put(step.kind.type.decode(msgspec.json.encode(obj)))
    return graph, steps


def in_dependency_order(planned: Iterable[tuple[Step, Json]]) -> list[Step]:
    """Return the steps, each after the steps that it refers to, otherwise in the order of the file."""
    graph, steps = _graph(planned)
    out: dict[str, Step] = {}
    entered: set[str] = set()
    work = list(reversed(steps))
    while work:
        id_ = work.pop()
        if id_ in entered:
            out.setdefault(id_, steps[id_])
            continue
        entered.add(id_)
        first = [edge.target for edge in graph.references(id_) if edge.target in steps and edge.target not in entered]
        work += [id_, *reversed(first)]
    return list(out.values())


def display_name(one: Step | Removal, namespace: str) -> str:
    """Return an object's name for people: `Task/build`."""
    return shown(one.kind.key(namespace, one.name))
