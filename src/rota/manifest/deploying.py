"""A project onto a server, so that it converges: the second time nothing is left to do.

Promises: everything is read, compared, and tried out on the server before anything is written; what is written is what
the file declares and differs, nothing else; a deploy that was interrupted is finished by the next one; nothing that is
not declared is deleted, unless it is asked for, and then only what a deploy created and this project's label marks.

Never: replaces an object by a new one of the same name, resets a field that the file no longer has.
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
from rota.manifest.deploying_blobs import BlobStore, CodeInBlobs, CodeRefused, CodeStore
from rota.manifest.deploying_changes import PARTS, Change, canonical, changes, operations
from rota.manifest.deploying_lacking import Lacking, lacking
from rota.manifest.deploying_maps import CodeInMaps, code_of, codes_named
from rota.manifest.deploying_reading import ListNotWhole, all_of, find
from rota.manifest.load import Manifest
from rota.manifest.project import Project
from rota.manifest.project_form import CREATED_ANNOTATION, PROJECT_LABEL, SECTIONS
from rota.registry import ApiError

Json = dict[str, Any]
Outcome = Literal["created", "updated", "unchanged"]

MANAGER = "rota-deploy"
"""Under which name a deploy owns fields."""
READS_AT_ONCE_MAX = 16
NAMESPACES_TOLD_MAX = 20
TRIES_MAX = 8
"""Times that one object is looked at again because somebody else changes it meanwhile."""
PRUNED: tuple[Kind, ...] = tuple(dict.fromkeys(section.kind for section in reversed(SECTIONS.values())))
"""Kinds of which a project can have objects; those that refer to others first."""


class DeployRefused(Exception):  # noqa: N818 - says what became of it
    """Why nothing was changed: everything that stands in the way."""

    def __init__(self, reasons: Sequence[str]) -> None:
        super().__init__("\n".join(reasons))
        self.reasons = list(reasons)


@dataclass(frozen=True, slots=True)
class Step:
    """One object: as it is, if it is, and what of it has to change."""

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
class Doomed:
    """An object of the project that its file no longer has."""

    kind: Kind
    name: str
    uid: str
    code: str = ""
    """The digest of the code that it holds, if it holds code."""
    created: bool = True
    """A deploy created it, so it is deleted. Otherwise only the project's label is removed from it."""

    @property
    def outcome(self) -> Literal["deleted", "released"]:
        return "deleted" if self.created else "released"


@dataclass(frozen=True, slots=True)
class Deployment:
    """What is to be done, in order."""

    project: Project
    steps: list[Step]
    """All objects of the file, each after those that it refers to."""
    doomed: list[Doomed]
    missing: list[str]
    """Digests of code that the server has not."""
    take_over: bool
    """Whether what another project has deployed is to be this one's."""
    lacking: list[Lacking] = field(default_factory=list)
    """What they refer to and nobody has."""
    left: list[Doomed] = field(default_factory=list)
    """What the project has on the server, its file no longer has, and a deploy that does not prune leaves there."""

    @property
    def writes(self) -> int:
        return len(self.doomed) + sum(step.outcome != "unchanged" for step in self.steps)

    def tell(self, told: Callable[[Step | Doomed], None]) -> None:
        """What `carry_out` would tell."""
        for step in self.steps:
            told(step)
        for doomed in self.doomed:
            told(doomed)


class Deployer:
    """Deploys projects to one server and namespace. `blobs`: its blob store; without one, code is in ConfigMaps."""

    def __init__(self, client: Client, blobs: BlobStore | None) -> None:
        self._client = Client(client.backend, manager=MANAGER, namespace=client.namespace)
        self._code: CodeStore = CodeInMaps(self._client) if blobs is None else CodeInBlobs(blobs)

    # Beforehand.

    async def foresee(self, project: Project, *, prune: bool = False, take_over: bool = False) -> Deployment:
        """What a deploy would do. Raises `DeployRefused` with everything that the server, or sense, would refuse."""
        refused: list[str] = []
        lives = await self._lives(project)
        steps: list[Step] = []
        for manifest, live in zip(project.manifests, lives, strict=True):
            why = _objection(project, manifest, live, take_over=take_over)
            if why:
                refused.append(_at(manifest, why))
            else:
                steps.append(step_of(manifest, live))
        refused += await self._unknown_functions(project)
        planned: list[tuple[Step, Json]] = []
        if not refused:
            for step in steps:
                try:
                    planned.append(await self._tried(step, project, take_over=take_over))
                except ApiError as error:
                    if (error.details or {}).get("kind") == Namespace.api.plural:
                        # It would be told of every object.
                        raise DeployRefused([f"{project.source}: {await self._no_namespace()}"]) from None
                    refused.append(_at(step.manifest, error.message))
        if refused:
            raise DeployRefused(refused)
        missing = await self._missing(project)
        doomed = await self._doomed(project) if prune else []
        if prune:
            doomed += await self._doomed_code(project, planned, doomed)
        refused += [why for one in doomed if (why := await self._spared(one, project))]
        if refused:
            raise DeployRefused(refused)
        graph, known = _graph(planned)
        gone = {one.kind.key(self._client.namespace, one.name) for one in doomed if one.created}
        lacks = await lacking(self._client, graph, known, gone)
        left = [] if prune else await self._left(project)
        return Deployment(project, ordered(planned), doomed, missing, take_over, lacks, left)

    async def _left(self, project: Project) -> list[Doomed]:
        """What pruning would take away, if that may be read: a deploy does not depend on it."""
        try:
            return await self._doomed(project)
        except (ApiError, ListNotWhole):
            return []

    async def _lives(self, project: Project) -> list[Json | None]:
        turns = asyncio.Semaphore(READS_AT_ONCE_MAX)

        async def read(manifest: Manifest) -> Json | None:
            async with turns:
                return await find(self._client, manifest.kind, manifest.name)

        return await asyncio.gather(*map(read, project.manifests))

    async def _unknown_functions(self, project: Project) -> list[str]:
        """Functions that are only named, and that are not there, or not for long."""
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

    async def _tried(self, step: Step, project: Project, *, take_over: bool) -> tuple[Step, Json]:
        """A step as the server takes it, and what it would come to."""
        step, after = await self._write(step, project, take_over=take_over, dry_run=True)
        if step.live is not None and _substance(after) == _substance(step.live):
            # Another way to write what is there: the server makes the same of it.
            step = replace(step, changes=[])
        return step, after

    async def _no_namespace(self) -> str:
        name = self._client.namespace
        manifest = f"{{apiVersion: v1, kind: Namespace, metadata: {{name: {name}}}}}"
        how = f"`echo {shlex.quote(manifest)} | rota apply -f -`"
        there: list[str] = []
        with contextlib.suppress(ApiError):  # Not everybody may list them.
            page = await self._client.list(Namespace.api, limit=NAMESPACES_TOLD_MAX)
            there = [one["metadata"]["name"] for one in page.items]
        near = get_close_matches(name, there, 1)
        meant = f"; did you mean {near[0]}?" if near else ""
        others = f" ({', '.join(there)})" if there else ""
        return f'there is no namespace "{name}"{meant}; choose another with -n{others}, or make it: {how}'

    async def _missing(self, project: Project) -> list[str]:
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

    async def _doomed(self, project: Project) -> list[Doomed]:
        kept = {(manifest.kind, manifest.name) for manifest in project.manifests}
        kept |= {(Function.api, name) for name in project.mentioned}
        found: list[Doomed] = []
        for kind in PRUNED:
            for obj in await all_of(self._client, kind, f"{PROJECT_LABEL}={project.name}"):
                meta = obj["metadata"]
                if (kind, meta["name"]) not in kept and not meta.get("deletionTimestamp"):
                    created = CREATED_ANNOTATION in meta.get("annotations", {})
                    found.append(Doomed(kind, meta["name"], meta["uid"], created=created))
        return found

    async def _doomed_code(
        self, project: Project, planned: Iterable[tuple[Step, Json]], doomed: Iterable[Doomed]
    ) -> list[Doomed]:
        """Objects with code of the project that no function names once the deploy is done."""
        held = [obj for obj in await self._code.objects(project.name) if not obj["metadata"].get("deletionTimestamp")]
        if not held:
            return []
        after = {step.name: obj for step, obj in planned if step.kind is Function.api}
        gone = {one.uid for one in doomed if one.created}
        lives = [obj for obj in await all_of(self._client, Function.api) if obj["metadata"]["uid"] not in gone]
        used = codes_named([*after.values(), *(obj for obj in lives if obj["metadata"]["name"] not in after)])
        return [
            Doomed(ConfigMap.api, obj["metadata"]["name"], obj["metadata"]["uid"], code_of(obj))
            for obj in held
            if code_of(obj) not in used
        ]

    async def _spared(self, doomed: Doomed, project: Project) -> str:
        """Why the server would not delete or release it, if so."""
        try:
            await self._remove(doomed, project.name, dry_run=True)
        except ApiError as error:
            return f"{project.source}: {error.message}"
        return ""

    # In earnest.

    async def carry_out(self, deployment: Deployment, told: Callable[[Step | Doomed], None]) -> None:
        """Do it. `told` hears of each object when it is done."""
        project = deployment.project
        for digest in deployment.missing:
            try:
                await self._code.put(project.packs[digest], project.name)
            except CodeRefused as error:
                raise DeployRefused([f"{project.places[digest]}: {error}"]) from None
        for step in deployment.steps:
            done, _ = await self._write(step, project, take_over=deployment.take_over, dry_run=False)
            told(done)
        for doomed in deployment.doomed:
            if not doomed.code:
                await self._remove(doomed, project.name, dry_run=False)
                told(doomed)
        code = [doomed for doomed in deployment.doomed if doomed.code]
        # Somebody may have deployed meanwhile what was to go.
        used = codes_named(await all_of(self._client, Function.api)) if code else set()
        for doomed in code:
            if doomed.code not in used:
                await self._remove(doomed, project.name, dry_run=False)
                told(doomed)

    async def _write(self, step: Step, project: Project, *, take_over: bool, dry_run: bool) -> tuple[Step, Json]:
        """Make one object as it is declared. Returns what was to do in the end, and what it came to."""
        manifest = step.manifest
        for tries_left in reversed(range(TRIES_MAX)):
            try:
                return step, await self._written(step, project, dry_run=dry_run)
            except ApiError as error:
                if error.code not in (404, 409, 422) or not tries_left:
                    raise
                live = await find(self._client, manifest.kind, manifest.name)
                # It may have been deleted meanwhile, or made by another project.
                why = _objection(project, manifest, live, take_over=take_over)
                if why:
                    raise DeployRefused([_at(manifest, why)]) from None
                fresh = step_of(manifest, live)
                if error.code != 409 and _identity(fresh) == _identity(step):
                    raise
                step = fresh
        raise AssertionError("the last try ends it")

    async def _written(self, step: Step, project: Project, *, dry_run: bool) -> Json:
        if step.live is None:
            return await self._client.create(_created_by(project, step.manifest.object), dry_run=dry_run)
        if not step.changes:
            return step.live
        patch = operations(step.changes, step.live["metadata"]["uid"])
        return await self._client.patch(step.kind, step.name, patch, type="json", dry_run=dry_run)

    async def _remove(self, doomed: Doomed, project: str, *, dry_run: bool) -> None:
        kind, name, uid = doomed.kind, doomed.name, doomed.uid
        try:
            if doomed.created:
                await self._client.delete(kind, name, uid=uid, propagation="Background", dry_run=dry_run)
            else:
                await self._client.patch(kind, name, _unlabelled(uid, project), type="json", dry_run=dry_run)
        except ApiError as error:
            # It is gone, or another one of the same name has come, which is not the one that was shown.
            if error.code not in (404, 409) and (doomed.created or error.code != 422):
                raise


def _created_by(project: Project, obj: Json) -> Json:
    meta = obj["metadata"]
    return {
        **obj,
        "metadata": {**meta, "annotations": {**meta.get("annotations", {}), CREATED_ANNOTATION: project.name}},
    }


def _unlabelled(uid: str, project: str) -> list[Json]:
    """Return a JSON patch that removes the project's label, and fails if the object or the label is another by now."""
    path = f"/metadata/labels/{PROJECT_LABEL.replace('/', '~1')}"
    return [
        {"op": "test", "path": "/metadata/uid", "value": uid},
        {"op": "test", "path": path, "value": project},
        {"op": "remove", "path": path},
    ]


def _at(manifest: Manifest, why: str) -> str:
    return f"{manifest.source}:{manifest.line}: {why}"


def step_of(manifest: Manifest, live: Json | None) -> Step:
    return Step(manifest, live, [] if live is None else changes(manifest.kind, manifest.object, live))


def _identity(step: Step) -> Any:
    return (step.live or {}).get("metadata", {}).get("uid"), step.changes


def _substance(obj: Json) -> bytes:
    meta = obj["metadata"]
    parts = {name: obj.get(name) for name in PARTS if name != "metadata"}
    return canonical({**parts, "labels": meta.get("labels"), "annotations": meta.get("annotations")})


def _objection(project: Project, manifest: Manifest, live: Json | None, *, take_over: bool) -> str:
    """Why an object cannot be made as it is declared, before a server is asked."""
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
    """What refers to what, and each step by its node."""
    graph = Graph()
    steps: dict[str, Step] = {}
    for step, obj in planned:
        steps[step.kind.key(obj["metadata"].get("namespace", ""), step.name)] = step
        # A newer server may have values that are unknown here. Such an object stays where the file has it.
        with contextlib.suppress(msgspec.ValidationError):
            graph.put(step.kind.type.decode(msgspec.json.encode(obj)))
    return graph, steps


def ordered(planned: Iterable[tuple[Step, Json]]) -> list[Step]:
    """Each after what it refers to, as far as that is here; otherwise in the order of the file."""
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


def named(one: Step | Doomed, namespace: str) -> str:
    """An object as people write it."""
    return shown(one.kind.key(namespace, one.name))
