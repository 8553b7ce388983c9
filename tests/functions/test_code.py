"""Where code and packages come from, and how long they are kept."""

from __future__ import annotations

import asyncio
import io
import os
import tarfile
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from rota.client import Client
from rota.registry import ApiError
from rota.runtime.blobs import Blobs, digest_of
from rota.runtime.code import CODE, PACKAGES, CodeCache, CodeRefused, environment_name
from rota.runtime.code.places import UNUSED_SECONDS_MIN, cached, collect
from tests.functions.index import index
from tests.functions.town import API, Town, ready
from tests.workspace.conftest import Repo

ONE = "def handler(event, context):\n    return 1"


def tar(**files: str) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for name, text in files.items():
            member = tarfile.TarInfo(name.replace("__", "/") + ".py")
            member.size = len(text)
            archive.addfile(member, io.BytesIO(text.encode()))
    return out.getvalue()


async def put(home: Path, content: bytes) -> str:
    async def pieces() -> AsyncIterator[bytes]:
        yield content

    digest = digest_of(content)
    await Blobs(home).put(digest, pieces())
    return digest


async def test_code_is_a_blob_by_its_digest(town: Town) -> None:
    digest = await put(
        town.home, tar(app="from lib.part import value\ndef handler(e, c):\n    return value", lib__part="value = 7")
    )
    await town.deploy("packed", "", source={"digest": digest})
    assert (await town.served("/default/packed")).json == 7
    found = await town.function("packed", lambda one: one.status and one.status.digest)
    assert found.status is not None and found.status.digest == digest


async def test_a_blob_that_is_not_there_is_a_condition_that_says_what_to_do(town: Town) -> None:
    digest = "sha256:" + "0" * 64
    await town.deploy("lost", "", source={"digest": digest})
    found = await town.function("lost", lambda one: ready(one) == "CodeNotFound")
    condition = found.status.condition("Ready") if found.status is not None else None
    assert condition is not None and "deploy" in condition.message
    assert (await town.call("/default/lost")).status == 500


async def test_a_blob_that_comes_after_its_function_is_found(town: Town) -> None:
    content = tar(app=ONE)
    await town.deploy("early", "", source={"digest": digest_of(content)})
    await town.function("early", lambda one: ready(one) == "CodeNotFound")
    await put(town.home, content)
    assert (await town.served("/default/early")).json == 1


async def test_code_can_be_in_a_workspace(town: Town, tmp_path: Path) -> None:
    repo = Repo(tmp_path / "origin")
    repo.commit("app.py", "def handler(event, context):\n    return 'from a repository'\n")
    meta = {"name": "ws"}
    await town.client.create({"apiVersion": API, "kind": "Workspace", "metadata": meta, "spec": {"repo": repo.url}})
    await town.deploy("checked-out", "", source={"workspaceRef": {"name": "ws"}})
    assert (await town.served("/default/checked-out")).json == "from a repository"


async def test_packages_are_installed_once_for_all_who_require_them(
    town: Town, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = "import tinything\ndef handler(event, context):\n    return tinything.VALUE"
    with index() as served:
        monkeypatch.setenv("PIP_INDEX_URL", served.url)
        for name in ("first", "second"):
            await town.deploy(name, code, requirements=["tinything==1.0"])
        first, second = await asyncio.gather(*(town.served(f"/default/{name}") for name in ("first", "second")))
        assert first.json == second.json == "from the index"
        assert sum("files" in path for path in served.asked) == 1
        # Who comes later finds them, and asks nobody.
        asked = len(served.asked)
        await town.deploy("third", code, requirements=["tinything==1.0"])
        assert (await town.served("/default/third")).json == "from the index" and len(served.asked) == asked


async def test_packages_that_cannot_be_had_are_a_condition_with_what_pip_said(
    town: Town, monkeypatch: pytest.MonkeyPatch
) -> None:
    with index() as served:
        monkeypatch.setenv("PIP_INDEX_URL", served.url)
        await town.deploy("lacking", ONE, requirements=["no-such-thing"])
        found = await town.function("lacking", lambda one: ready(one) == "PackageNotFound")
    condition = found.status.condition("Ready") if found.status is not None else None
    assert condition is not None and "No matching distribution found for no-such-thing" in condition.message


async def test_an_option_is_no_requirement(town: Town) -> None:
    with pytest.raises(ApiError, match=r"spec\.requirements: Invalid value: requirements must name packages"):
        await town.deploy("sly", ONE, requirements=["--index-url=http://elsewhere"])


async def test_a_secret_that_changes_reaches_the_workers_without_dropping_a_call(town: Town) -> None:
    await secret(town.client, "one")
    source = {"secretKeyRef": {"name": "s", "key": "k"}}
    code = """
        import os, time
        def handler(event, context):
            if event["path"] == "/slow":
                print("begun", flush=True)
                time.sleep(1)
            return os.environ["VALUE"]
    """
    await town.deploy("told", code, env=[{"name": "VALUE", "valueFrom": source}])
    assert (await town.call("/default/told")).json == "one"
    slow = asyncio.create_task(town.call("/default/told/slow"))
    await town.written("begun")
    await secret(town.client, "two")
    assert (await slow).json == "one"

    async def is_new() -> bool:
        return bool((await town.call("/default/told")).json == "two")

    await town.until(is_new)


async def test_while_a_secret_is_not_there_it_is_not_ready_and_nobody_waits_for_it(town: Town) -> None:
    source = {"secretKeyRef": {"name": "s", "key": "k"}}
    await town.deploy("bare", ONE, env=[{"name": "VALUE", "valueFrom": source}])
    await town.function("bare", lambda one: ready(one) == "DependencyNotFound")
    reply = await town.call("/default/bare")
    assert (reply.status, reply.json["error"]) == (500, "the function cannot be loaded")
    await secret(town.client, "one")
    assert (await town.served("/default/bare")).json == 1


async def secret(client: Client, value: str) -> None:
    body = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "stringData": {"k": value}}
    await client.apply(body, force=True)


# The folders themselves.


def test_code_that_was_changed_on_the_disk_is_not_unpacked(tmp_path: Path) -> None:
    digest = asyncio.run(put(tmp_path, tar(app=ONE)))
    Blobs(tmp_path).path(digest).write_bytes(b"something else")
    with pytest.raises(CodeRefused, match="damaged") as refused:
        CodeCache(tmp_path).unpack(digest)
    assert refused.value.reason == "CodeDamaged" and not cached(tmp_path, CODE, digest[7:]).exists()


def test_nothing_is_unpacked_outside_of_its_folder(tmp_path: Path) -> None:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        archive.addfile(tarfile.TarInfo("../../escaped"))
    digest = asyncio.run(put(tmp_path, out.getvalue()))
    with pytest.raises(CodeRefused):
        CodeCache(tmp_path).unpack(digest)
    assert not list(tmp_path.rglob("escaped"))


def test_what_nothing_uses_is_removed_after_a_while(tmp_path: Path) -> None:
    cache = CodeCache(tmp_path)
    used, unused = (cache.put_inline(text, "app:handler")[7:] for text in ("1", "2"))
    assert collect(tmp_path, CODE, {used}) == []
    long_ago = time.time() - UNUSED_SECONDS_MIN - 1
    for name in (used, unused):
        os.utime(cached(tmp_path, CODE, name), (long_ago, long_ago))
    assert collect(tmp_path, CODE, {used}) == [unused]
    assert cached(tmp_path, CODE, used).is_dir() and collect(tmp_path, PACKAGES, ()) == []


def test_packages_are_the_same_in_any_order_and_others_for_other_requirements() -> None:
    assert environment_name(["a", "b"]) == environment_name(["b", "a"]) != environment_name(["a"])
    assert environment_name([]) == ""
