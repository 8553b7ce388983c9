"""A project onto a server, so that it converges: the second time nothing is left to do.

Promises: everything is read, compared, and tried out on the server before anything is written; what is written is what
the file declares and differs, nothing else; a deploy that was interrupted is finished by the next one; nothing that is
not declared is deleted, unless it is asked for, and then only what is labelled as this project's.

Never: replaces an object by a new one of the same name, resets a field that the file no longer has.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import msgspec

from rota.api import Function, Kind, Namespace
from rota.client import Client
from rota.engine.references import Graph, shown
from rota.manifest.deploying_blobs import BlobStore
from rota.manifest.deploying_changes import PARTS, Change, canonical, changes, operations
from rota.manifest.deploying_lacking import Lacking, lacking
from rota.manifest.deploying_reading import all_of
from rota.manifest.load import Manifest
from rota.manifest.project import Project
from rota.manifest.project_form import PROJECT_LABEL, SECTIONS
from rota.registry import ApiError

Json = dict[str, Any]
Outcome = Literal["created", "updated", "unchanged"]

MANAGER = "rota-deploy"
"""Under which name a deploy owns fields."""
READS_AT_ONCE_MAX = 16
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
    """Deploys projects to one server and namespace. `blobs`: where code is kept there, if it can be."""

    def __init__(self, client: Client, blobs: BlobStore | None) -> None:
        self._client = Client(client.backend, manager=MANAGER, namespace=client.namespace)
        self._blobs = blobs

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
                        raise DeployRefused([f"{project.source}: {self._no_namespace()}"]) from None
                    refused.append(_at(step.manifest, error.message))
        if refused:
            raise DeployRefused(refused)
        missing = await self._missing(project)
        doomed = await self._doomed(project) if prune else []
        refused += [why for one in doomed if (why := await self._spared(one, project))]
        if refused:
            raise DeployRefused(refused)
        graph, known = _graph(planned)
        gone = {one.kind.key(self._client.namespace, one.name) for one in doomed}
        lacks = await lacking(self._client, graph, known, gone)
        return Deployment(project, ordered(planned), doomed, missing, take_over, lacks)

    async def _lives(self, project: Project) -> list[Json | None]:
        turns = asyncio.Semaphore(READS_AT_ONCE_MAX)

        async def read(manifest: Manifest) -> Json | None:
            async with turns:
                return await self._find(manifest.kind, manifest.name)

        return await asyncio.gather(*map(read, project.manifests))

    async def _find(self, kind: Kind, name: str) -> Json | None:
        try:
            return await self._client.get(kind, name)
        except ApiError as error:
            if error.code != 404 or not (error.details or {}).get("name"):
                raise
            return None

    async def _unknown_functions(self, project: Project) -> list[str]:
        """Functions that are only named, and that are not there, or not for long."""
        found: list[str] = []
        for name, line in project.mentioned.items():
            at = f'{project.source}:{line}: Function "{name}"'
            live = await self._find(Function.api, name)
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

    def _no_namespace(self) -> str:
        name = self._client.namespace
        manifest = f"{{apiVersion: v1, kind: Namespace, metadata: {{name: {name}}}}}"
        return f'there is no namespace "{name}"; choose another with -n, or make it: `rota apply` {manifest}'

    async def _missing(self, project: Project) -> list[str]:
        if not project.packs:
            return []
        if self._blobs is None:
            raise DeployRefused(
                [f"{project.source}: the server there keeps no code: write it under source.inline, or name a "
                 "repository that holds it under source.workspaceRef, instead of a path"]
            )  # fmt: skip
        return [digest for digest in project.packs if not await self._blobs.has(digest)]

    async def _doomed(self, project: Project) -> list[Doomed]:
        kept = {(manifest.kind, manifest.name) for manifest in project.manifests}
        kept |= {(Function.api, name) for name in project.mentioned}
        found: list[Doomed] = []
        for kind in PRUNED:
            for obj in await all_of(self._client, kind, f"{PROJECT_LABEL}={project.name}"):
                meta = obj["metadata"]
                if (kind, meta["name"]) not in kept and not meta.get("deletionTimestamp"):
                    found.append(Doomed(kind, meta["name"], meta["uid"]))
        return found

    async def _spared(self, doomed: Doomed, project: Project) -> str:
        """Why the server would not delete it, if so."""
        try:
            await self._delete(doomed, dry_run=True)
        except ApiError as error:
            return f"{project.source}: {error.message}"
        return ""

    # In earnest.

    async def carry_out(self, deployment: Deployment, told: Callable[[Step | Doomed], None]) -> None:
        """Do it. `told` hears of each object when it is done."""
        project = deployment.project
        for digest in deployment.missing:
            assert self._blobs is not None
            await self._blobs.put(digest, project.packs[digest].content)
        for step in deployment.steps:
            done, _ = await self._write(step, project, take_over=deployment.take_over, dry_run=False)
            told(done)
        for doomed in deployment.doomed:
            await self._delete(doomed, dry_run=False)
            told(doomed)

    async def _write(self, step: Step, project: Project, *, take_over: bool, dry_run: bool) -> tuple[Step, Json]:
        """Make one object as it is declared. Returns what was to do in the end, and what it came to."""
        manifest = step.manifest
        for tries_left in reversed(range(TRIES_MAX)):
            try:
                return step, await self._written(step, dry_run=dry_run)
            except ApiError as error:
                if error.code not in (404, 409, 422) or not tries_left:
                    raise
                live = await self._find(manifest.kind, manifest.name)
                # It may have been deleted meanwhile, or made by another project.
                why = _objection(project, manifest, live, take_over=take_over)
                if why:
                    raise DeployRefused([_at(manifest, why)]) from None
                fresh = step_of(manifest, live)
                if error.code != 409 and _identity(fresh) == _identity(step):
                    raise
                step = fresh
        raise AssertionError("the last try ends it")

    async def _written(self, step: Step, *, dry_run: bool) -> Json:
        if step.live is None:
            return await self._client.create(step.manifest.object, dry_run=dry_run)
        if not step.changes:
            return step.live
        patch = operations(step.changes, step.live["metadata"]["uid"])
        return await self._client.patch(step.kind, step.name, patch, type="json", dry_run=dry_run)

    async def _delete(self, doomed: Doomed, *, dry_run: bool) -> None:
        kind, name, uid = doomed.kind, doomed.name, doomed.uid
        try:
            await self._client.delete(kind, name, uid=uid, propagation="Background", dry_run=dry_run)
        except ApiError as error:
            # It is gone, or another one of the same name has come, which is not the one that was shown.
            if error.code not in (404, 409):
                raise


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
