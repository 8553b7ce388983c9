"""A claimed instance from Python, on a real server."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import rota
from rota import ApiError, ClaimLost, Client, CommandFailed, NoneFree
from rota.api import Instance
from rota.client.claims import files as files_module
from rota.client.claims import lease as lease_module
from rota.client.claims.gateway import Gateway
from rota.client.failures import NoServer
from rota.client.http import HttpBackend
from tests.claims.conftest import SECONDS_MAX, Site
from tests.until import until_so

# Claiming.


async def test_a_block_has_an_instance_and_gives_it_back(client: Client, shared: Site) -> None:
    async with client.claim("boxes", labels={"for": "tests"}, wait_seconds=20) as box:
        assert box.instance.startswith("boxes-") and box.namespace == "default" and box.expires_at is not None
        assert box.name in await shared.claims()
    assert box.name in await shared.claims("Released")


async def test_a_block_that_fails_gives_it_back(client: Client, shared: Site) -> None:
    with pytest.raises(ZeroDivisionError):
        async with client.claim("boxes", wait_seconds=20) as box:
            raise ZeroDivisionError
    assert box.name in await shared.claims("Released")


async def test_what_is_kept_stays_held(client: Client, shared: Site) -> None:
    async with client.claim("boxes", wait_seconds=20) as box:
        box.keep()
    assert box.name in await shared.claims()
    await Gateway(_http(client), "default").release(box.name)
    assert box.name not in await shared.claims()


async def test_a_pool_that_has_none_says_when_to_come_again(client: Client, shared: Site) -> None:
    with pytest.raises(NoneFree, match="WorkerPool/none") as caught:
        async with client.claim("none", wait_seconds=0):
            pass
    assert caught.value.retry_after >= 1
    with pytest.raises(NoneFree, match="in time"):
        async with client.claim("none", wait_seconds=1):
            pass
    assert await shared.claims("Waiting") == []


async def test_a_wrong_pool_is_told_with_those_that_there_are(client: Client) -> None:
    with pytest.raises(ApiError, match="there are boxes, none"):
        async with client.claim("boxs"):
            pass


async def test_that_there_is_no_server_is_told_at_once(tmp_path: Path) -> None:
    with pytest.raises(NoServer, match="rota start"):
        async with Client.connect(home=tmp_path).claim("boxes"):
            pass


async def test_it_works_over_https(shared: Site) -> None:
    client = Client.connect(kubeconfig=shared.live.kubeconfig)
    try:
        async with client.claim("boxes", wait_seconds=20) as box:
            await box.files.write_text("note", "over TLS")
            assert (await box.exec("cat note")).stdout == "over TLS"
    finally:
        await client.close()


async def test_two_with_the_same_name_have_the_same_instance(client: Client, shared: Site) -> None:
    other = shared.client()
    try:
        async with other.claim("boxes", name="ours", wait_seconds=20) as second:
            async with client.claim("boxes", name="ours", wait_seconds=20) as first:
                assert first.instance == second.instance
            with pytest.raises(ClaimLost, match=r"Released") as caught:
                await second.exec("true")
            assert caught.value.why == "Released"
    finally:
        await other.close()


async def test_a_name_that_was_used_is_refused_and_nothing_is_released(client: Client) -> None:
    async with client.claim("boxes", name="once", wait_seconds=20):
        pass
    with pytest.raises(ApiError, match="another name"):
        async with client.claim("boxes", name="once"):
            pass


async def test_a_block_is_entered_once(client: Client) -> None:
    holding = client.claim("boxes", wait_seconds=20)
    async with holding:
        with pytest.raises(RuntimeError, match="once"):
            await holding.__aenter__()


# The lease.


async def test_it_renews_itself(client: Client) -> None:
    async with client.claim("boxes", lease_seconds=1, wait_seconds=20) as box:
        began = box.expires_at
        assert began is not None
        await until_so(
            lambda: box.expires_at,
            lambda at: at is not None and (at - began).total_seconds() >= 1.2,
            f"a lease that ends 1.2 s after {began}",
        )
        assert (await box.exec("echo on")).stdout == "on\n"


async def test_a_lease_that_ends_is_told(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease_module, "RENEWALS_A_LEASE", 0.1)
    async with client.claim("boxes", lease_seconds=1, wait_seconds=20) as box:
        with pytest.raises(ClaimLost, match="Expired"):
            await _run_for_ever(box)
        with pytest.raises(ClaimLost):
            await box.files.list()


async def test_an_instance_that_is_gone_is_told_with_the_reason(client: Client) -> None:
    async with client.claim("boxes", wait_seconds=20) as box:
        up = asyncio.Event()
        running = asyncio.ensure_future(box.exec("echo up; sleep 1000", on_stdout=lambda data: up.set()))
        await asyncio.wait_for(up.wait(), SECONDS_MAX)
        await client.delete(Instance, box.instance)
        with pytest.raises(ClaimLost):
            async with asyncio.timeout(SECONDS_MAX):
                await running
        with pytest.raises(ClaimLost) as caught:
            await box.exec("true")
        assert caught.value.why


# Commands.


@pytest.fixture
async def box(client: Client) -> AsyncIterator[rota.Box]:
    async with client.claim("boxes", wait_seconds=20) as made:
        yield made


async def test_a_command_has_an_exit_code_and_two_outputs(box: rota.Box) -> None:
    result = await box.exec("echo out; echo err >&2; exit 3")
    assert (result.exit_code, result.stdout, result.stderr, result.truncated) == (3, "out\n", "err\n", False)
    with pytest.raises(CommandFailed, match="exit code 3: err") as caught:
        result.check()
    assert caught.value.result is result


async def test_words_are_not_for_a_shell(box: rota.Box) -> None:
    assert (await box.exec(["echo", "$HOME", "a b"])).check().stdout == "$HOME a b\n"


async def test_input_comes_from_text_bytes_and_streams(box: rota.Box) -> None:
    async def pieces() -> AsyncIterator[bytes]:
        yield b"str"
        yield b"eam"

    assert [(await box.exec("cat", stdin=given)).stdout for given in ("text", b"bytes", pieces())] == [
        "text",
        "bytes",
        "stream",
    ]
    data = os.urandom(3_000_000)
    assert (await box.exec("cat", stdin=data)).stdout_bytes == data


async def test_input_that_fails_ends_the_command(box: rota.Box) -> None:
    async def pieces() -> AsyncIterator[bytes]:
        yield b"some"
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await box.exec("cat; sleep 1000", stdin=pieces())


async def test_variables_and_the_folder_are_the_commands(box: rota.Box) -> None:
    result = await box.exec('pwd; printf %s "$A:$B"', env={"A": "1 '2'\n", "B": "$A"}, cwd="/tmp")
    assert result.check().stdout == "/tmp\n1 '2'\n:$A"
    assert (await box.exec(["true"], cwd="/nowhere")).exit_code == 126
    with pytest.raises(ValueError, match="env: 'a-b'"):
        await box.exec("true", env={"a-b": ""})


async def test_a_command_whose_time_is_up_is_ended(box: rota.Box) -> None:
    with pytest.raises(TimeoutError, match=r"more than 0.2 s"):
        await box.exec("echo $$ > pid; exec sleep 1000", timeout=0.2)
    await until_so(lambda: box.exec("kill -0 $(cat pid)"), lambda done: done.exit_code, "the end of the command")


async def test_output_beyond_the_bound_is_left_out_and_told(box: rota.Box) -> None:
    seen: list[bytes] = []
    result = await box.exec("head -c 100000 /dev/zero; echo x >&2", output_bytes_max=1000, on_stdout=seen.append)
    assert result.truncated and len(result.stdout_bytes) == 1000 and result.stderr == "x\n"
    assert sum(map(len, seen)) == 100_000


async def test_output_is_told_as_it_comes(box: rota.Box) -> None:
    first = asyncio.Event()

    async def told(data: bytes) -> None:
        first.set()

    running = asyncio.ensure_future(
        box.exec("echo now; cat go 2>&1; until [ -e go ]; do sleep 0.01; done", on_stdout=told)
    )
    await first.wait()
    await box.files.write("go", b"")
    assert (await running).exit_code == 0


async def test_a_command_that_is_too_long_says_what_to_do(box: rota.Box) -> None:
    with pytest.raises(ValueError, match="standard input"):
        await box.exec("#" * 100_000)


# Files.


async def test_files_are_written_read_listed_and_removed(box: rota.Box) -> None:
    await box.files.write_text("a/b.txt", "hällo", mode=0o600)
    assert await box.files.read_text("a/b.txt") == "hällo"
    assert await box.files.read("a/b.txt", offset=1, limit=2) == "ä".encode()
    (entry,) = await box.files.list("a")
    assert (entry.name, entry.type, entry.size, entry.mode) == ("b.txt", "file", 6, "0600")
    assert (await box.files.stat("a")).type == "directory"
    with pytest.raises(IsADirectoryError):
        await box.files.read("a")
    await box.files.remove("a", recursive=True)
    for missing in (box.files.read("a"), box.files.stat("a"), box.files.list("a")):
        with pytest.raises(FileNotFoundError):
            await missing


async def test_a_file_that_is_too_large_to_read_is_refused(box: rota.Box, monkeypatch: pytest.MonkeyPatch) -> None:
    await box.files.write("large", b"x" * 1000)
    monkeypatch.setattr(files_module, "READ_BYTES_MAX", 999)
    with pytest.raises(OverflowError, match="download it"):
        await box.files.read("large")


async def test_folders_and_files_go_up_and_come_down(box: rota.Box, tmp_path: Path) -> None:
    here = tmp_path / "here"
    (here / "sub").mkdir(parents=True)
    (here / "sub" / "run.sh").write_text("#!/bin/sh\necho ran")
    (here / "sub" / "run.sh").chmod(0o755)
    await box.files.upload(here, "there")
    assert (await box.exec("there/sub/run.sh > there/out; ln -s /etc/passwd there/evil")).exit_code == 0
    await box.files.download("there", tmp_path / "back")
    assert (tmp_path / "back" / "out").read_text() == "ran\n"
    assert not (tmp_path / "back" / "evil").is_symlink()
    await box.files.upload(here / "sub" / "run.sh", "one.sh")
    await box.files.download("one.sh", tmp_path / "one.sh")
    assert (tmp_path / "one.sh").stat().st_mode & 0o777 == 0o755


def test_to_import_the_package_imports_nothing_else() -> None:
    code = "import rota, sys; print([name for name in sys.modules if name.startswith('rota.')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


async def _run_for_ever(box: rota.Box) -> None:
    async with asyncio.timeout(SECONDS_MAX):
        while True:
            await box.exec("true")


def _http(client: Client) -> HttpBackend:
    assert isinstance(client.backend, HttpBackend)
    return client.backend
