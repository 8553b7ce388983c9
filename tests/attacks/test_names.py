"""By names: every string of every kind as the name of something else, and what comes of it on disk."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import zlib
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from rota.api import KINDS, Instance
from rota.api.schema import object_schema
from rota.control.making.resolving import resolve
from rota.engine import StoreObjects
from rota.registry import ApiError, Registry
from rota.registry.options import WriteOptions
from rota.runtime.archive import result_of
from rota.runtime.interface import Order, Owner, Refused, Subject
from rota.runtime.keeper.client import Keeper
from rota.runtime.local import LocalRuntime
from rota.runtime.paths import UnsafeName
from rota.store import MemoryStore
from tests.attacks import hostile
from tests.attacks.hostile import Place
from tests.examples import example, examples

IS_LONG = os.environ.get("ROTA_FUZZ") == "all"
"""Every name in every place, which takes minutes. Else some of the names in each, always the same."""
NAMES_A_PLACE = 3
SECONDS_MAX = 60

FREE = {
    # Texts for people, and for programs inside an instance.
    *("displayName", "region", "message", "reason", "prompt", "stdin", "instructions", "content", "inline", "value"),
    # Values of ConfigMaps and Secrets, labels, annotations, headers and items: kept, and given inside.
    *("data{}", "binaryData{}", "stringData{}", "labels{}", "annotations{}", "headers{}", "map{}", "images{}"),
    *("type", "values[]", "labels[]", "excludeLabels[]", "path"),
    # With a rule of its own, which says more than a pattern.
    *("entrypoint", "image", "model", "effort"),
    # Events, leases and namespaces, as Kubernetes has them: nobody here acts on what they say.
    *("apiVersion", "kind", "namespace", "name", "uid", "resourceVersion", "fieldPath", "component", "host", "action"),
    *("reportingComponent", "reportingInstance", "holderIdentity", "strategy", "preferredHolder", "finalizers[]"),
}
"""Ends of the paths of fields that may hold any text."""
AS_KUBERNETES = ("Event", "Lease", "Namespace")
NAMED_BY_RULE = {("TaskSpawner", "path"), ("Instance", "name")}


def free_texts(schema: dict[str, Any], path: str = "") -> Iterator[str]:
    """The paths of all strings of a schema that has neither a pattern nor a list of values for them."""
    if schema.get("type") == "string" and not schema.keys() & {"pattern", "enum", "format"}:
        yield path
    for name, each in schema.get("properties", {}).items():
        if path or name != "status":
            yield from free_texts(each, f"{path}.{name}")
    if "items" in schema:
        yield from free_texts(schema["items"], f"{path}[]")
    if isinstance(schema.get("additionalProperties"), dict):
        yield from free_texts(schema["additionalProperties"], f"{path}{{}}")


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_to_find_a_field_that_takes_any_text_and_that_nobody_thought_of(kind: str) -> None:
    found = set(free_texts(object_schema(KINDS[kind])))
    unknown = {path for path in found if path.rpartition(".")[2] not in FREE}
    assert not unknown, "give each a pattern (rota.api.model has some), or say in FREE that it reaches no path"
    if kind not in AS_KUBERNETES:
        loose = {
            path for path in found if path.count(".") > 1 and path.rpartition(".")[2] in ("name", "namespace", "uid")
        }
        assert not loose, "names are DNS labels, or names of objects"


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    """A tree beside the home."""
    folder = tmp_path / "victim"
    (folder / "folder").mkdir(parents=True)
    (folder / "file").write_text("kept")
    (folder / "folder" / "file").write_text("kept, too")
    return folder


@pytest.fixture
def home(tmp_path: Path) -> Path:
    folder = tmp_path / "home"
    folder.mkdir(mode=0o700)
    return folder


@pytest.fixture
async def registry() -> AsyncIterator[Registry]:
    made = Registry(MemoryStore())
    await made.start()
    yield made
    await made.stop()


@pytest.fixture
async def runtime(home: Path) -> AsyncIterator[LocalRuntime]:
    keeper = Keeper.connect(home, ["--die-with", str(os.getpid())])
    async with asyncio.timeout(SECONDS_MAX), LocalRuntime(home, keeper=keeper) as made:
        yield made
        await made.shutdown()


def tried(victim: Path, place: Place) -> list[str]:
    """The names for a place: all of them, or some, which are others in another place."""
    names = hostile.names(victim)
    first = zlib.crc32(str(place).encode()) % len(names)
    return names if IS_LONG else [names[(first + i * 5) % len(names)] for i in range(NAMES_A_PLACE)]


STEP = re.compile(r"[A-Za-z0-9][-A-Za-z0-9_.]{0,252}")
KEY = re.compile(r"[-A-Za-z0-9_.]{1,253}")
"""The form that Kubernetes gives to keys of Secrets and ConfigMaps, and to names of variables."""


def is_harmless(place: Place, name: str) -> bool:
    *above, last = place.steps
    if place.is_key and above[-1] in ("data", "binaryData", "stringData"):
        return KEY.fullmatch(name) is not None and name not in (".", "..")
    if (last == "key" and above[-1] in ("secretKeyRef", "configMapKeyRef")) or (last == "name" and "env" in above[-2:]):
        return KEY.fullmatch(name) is not None
    return not is_name(place) or STEP.fullmatch(name) is not None


def is_name(place: Place) -> bool:
    """Report whether a place is for the name of something, and not for a value."""
    *above, last = place.steps
    if above and above[-1] in hostile.MAPS:
        return place.is_key and above[-1] == "images"
    return last in ("name", "namespace", "uid", "placementName", "cellName", "instanceType", "function", "templateHash")


@pytest.mark.parametrize("kind", sorted(KINDS))
async def test_to_have_a_name_of_another_form_admitted(registry: Registry, victim: Path, kind: str) -> None:
    """An admitted object has the string as a text, or as a name of the right form."""
    api, done = KINDS[kind], set()
    for obj in examples(kind):
        obj.pop("status", None)
        namespace = obj["metadata"].get("namespace", "")
        for place in hostile.places(obj):
            if place.pattern in done or place.steps[0] in ("apiVersion", "kind"):
                continue
            done.add(place.pattern)
            for name in tried(victim, place):
                if not name and place.steps[0] == "metadata":
                    continue  # Nothing is as good as leaving it out.
                try:
                    options = WriteOptions(dry_run=True, field_validation="Strict")
                    made = await registry.create(api, namespace, hostile.changed(obj, place, name), options)
                except ApiError as error:
                    if error.code >= 500:
                        raise
                    continue
                if kind not in AS_KUBERNETES and not is_harmless(place, name):
                    pytest.fail(f"{kind} {place}: {name[:80]!r} was admitted: {made}")


INSTANCE: dict[str, Any] = {
    "containers": [
        {
            "name": "main",
            "command": ["sh", "-c", "exit 0"],
            "args": ["argument"],
            "workingDir": "/",
            "env": [{"name": "A", "value": "text"}],
            "ports": [{"name": "http"}],
        }
    ],
    "volumes": [{"name": "config", "configMap": {"name": "config"}, "mountPath": "/config"}],
    "storage": {"size": "1Mi", "path": "/data"},
    "restartPolicy": "Never",
    "templateHash": "x",
    "ordinal": 0,
}


async def ran(runtime: LocalRuntime, ordered: Order) -> None:
    """Start it, have it end, and remove all that there is of it."""
    try:
        await runtime.start(ordered)
    except (Refused, UnsafeName):
        return
    finally:
        await removed(runtime, ordered)


async def removed(runtime: LocalRuntime, ordered: Order) -> None:
    try:
        await runtime.stop(ordered.subject, 0)
        if ordered.storage_owner is not None:
            await runtime.drop_storage(ordered.subject.namespace, ordered.storage_owner, ordered.storage_name)
    except UnsafeName:
        pass


async def test_to_reach_the_disk_by_a_string_of_an_instance_that_is_admitted(
    registry: Registry, runtime: LocalRuntime, victim: Path, tmp_path: Path, home: Path
) -> None:
    await registry.ensure_namespace("default")
    config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "config"}, "data": {"file": "text"}}
    await registry.create(KINDS["ConfigMap"], "default", config)
    obj = example("Instance", INSTANCE)
    before, started = hostile.seen(tmp_path, home), 0
    for i, place in enumerate(hostile.places(obj)):
        for name in tried(victim, place):
            written = hostile.changed(obj, place, name)
            try:
                answer = await registry.create(KINDS["Instance"], "default", written)
            except ApiError:
                continue
            instance = Instance.decode(answer.value)
            number = {"http": 20_000 + i}
            try:
                ordered = resolve(
                    StoreObjects(registry), instance, instance.spec.containers[0], 0, number, policy=runtime.policy
                )
            except Refused:
                pass
            else:
                await ran(runtime, ordered)
                started += 1
            await registry.delete(KINDS["Instance"], "default", instance.metadata.name)
            assert hostile.seen(tmp_path, home) == before, (str(place), name)
    assert started > 5


async def test_to_reach_the_disk_by_what_no_admission_has_seen(
    runtime: LocalRuntime, victim: Path, tmp_path: Path, home: Path
) -> None:
    """As from a store that was restored, or from a version that was less strict."""
    plain = Order(
        Subject("default", "box", "uid"), "main", 0, ("sh", "-c", "exit 0"), {"A": "text"},
        working_dir="/", storage_name="box-0", storage_path="/data", storage_owner=Owner("owner", "uid"),
        volumes={"/config": {"file": b"text"}}, code="a" * 64, packages="b" * 64,
    )  # fmt: skip
    whole = msgspec.to_builtins(plain)
    before = hostile.seen(tmp_path, home)
    for place in hostile.places(whole):
        if place.steps[0] in ("runtime", "isolation", "network", "argv", "volumes"):
            continue
        for name in hostile.names(victim):
            made = hostile.changed(whole, place, name)
            await ran(runtime, msgspec.convert(made, Order))
            assert hostile.seen(tmp_path, home) == before, (str(place), name)
    for name in hostile.names(victim):
        for volumes in ({name: {"file": b"text"}}, {"/config": {name: b"text"}}):
            await ran(runtime, msgspec.structs.replace(plain, volumes=volumes, code="", packages=""))
        for names in ((name, "task", "uid"), ("default", name, "uid"), ("default", "task", name)):
            with contextlib.suppress(UnsafeName, OSError):
                await runtime.archive.put(result_of(*names), b"result")
            runtime.archive.drop(names[0], names[1], lambda namespace, task: "")
        assert hostile.seen(tmp_path, home) == before, name


async def test_to_have_the_server_follow_a_link_when_it_removes(
    runtime: LocalRuntime, victim: Path, tmp_path: Path, home: Path
) -> None:
    before = hostile.seen(tmp_path, home)
    ordered = Order(
        Subject("default", "box", "uid"), "main", 0, ("sleep", "1000"), {},
        storage_name="box-0", storage_path="/data", storage_owner=Owner("owner", "uid"),
    )  # fmt: skip
    await runtime.start(ordered)
    storage = home / "storage" / "default" / "box-0"
    for at in (storage, home / "instances" / "default"):
        (at / "link").symlink_to(victim)
        (at / "deeper").mkdir()
        (at / "deeper" / "link").symlink_to(victim)
        (at / "gone").symlink_to(tmp_path / "nothing")
    await removed(runtime, ordered)
    assert not storage.exists()
    # A namespace, or an instance, that is a link is removed as a link when a server starts.
    (home / "instances" / "namespace").symlink_to(victim)
    keeper = Keeper.connect(home, ["--die-with", str(os.getpid())])
    async with LocalRuntime(home, keeper=keeper) as other:
        assert await other.answers(SECONDS_MAX)
    assert hostile.seen(tmp_path, home) == before
