"""The same without `async`."""

from __future__ import annotations

import inspect
import threading
from pathlib import Path

import pytest

import rota
import rota.sync
from rota import CommandFailed, NoneFree
from rota.client import claims
from tests.claims.conftest import Site


def test_a_block_has_commands_and_files(shared: Site, tmp_path: Path) -> None:
    seen: list[bytes] = []
    with rota.sync.Client.connect(home=shared.live.home).claim("boxes", wait_seconds=20) as box:
        assert box.exec("echo $A", env={"A": "1"}, on_stdout=seen.append).check().stdout == "1\n"
        with pytest.raises(CommandFailed):
            box.exec("exit 1").check()
        with pytest.raises(TimeoutError):
            box.exec("sleep 1000", timeout=0.1)
        box.files.write_text("a/notes", "mine")
        assert [one.name for one in box.files.list("a")] == ["notes"] and box.files.stat("a/notes").size == 4
        box.files.download("a", tmp_path / "a")
        assert (tmp_path / "a" / "notes").read_text() == "mine"
        box.files.upload(tmp_path / "a", "b")
        box.files.remove("b/notes")
    assert seen == [b"1\n"]
    with pytest.raises(RuntimeError, match="given back"):
        box.exec("true")


def test_the_thread_ends_with_the_last_block(shared: Site) -> None:
    client = rota.sync.Client.connect(home=shared.live.home)
    with client.claim("boxes", wait_seconds=20), client.claim("boxes", wait_seconds=20):
        assert [one.name for one in threading.enumerate()].count("rota-claims") == 1
    assert "rota-claims" not in [one.name for one in threading.enumerate()]


def test_a_refusal_ends_the_thread(shared: Site) -> None:
    with pytest.raises(NoneFree), rota.sync.Client.connect(home=shared.live.home).claim("none", wait_seconds=0):
        pass
    assert "rota-claims" not in [one.name for one in threading.enumerate()]


@pytest.mark.parametrize("name", ["Box", "Files"])
def test_both_forms_have_the_same_names(name: str) -> None:
    one, other = (
        {key for key, _ in inspect.getmembers(getattr(module, name)) if not key.startswith("_")}
        for module in (claims, rota.sync)
    )
    assert one - other <= {"close"} and other <= one
