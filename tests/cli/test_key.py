"""`rota key`: the key that Secrets are encrypted with."""

from __future__ import annotations

from pathlib import Path

from rota.store import SqliteStore, read_key
from tests.cli.conftest import Terminal


async def test_a_key_is_made_once_and_changed_for_another(rota: Terminal, tmp_path: Path) -> None:
    old, new, home = tmp_path / "old", tmp_path / "new", tmp_path / "home"
    home.mkdir()
    for key in (old, new):
        made = rota("key", "create", str(key))
        assert made.code == 0 and f"{key} written" in made.out
    again = rota("key", "create", str(old))
    assert again.code == 1 and f"{old}: no key is written: file exists" in again.err
    await SqliteStore(home / "rota.db", sealer=read_key(old)).close()
    wrong = rota("--home", str(home), "key", "rotate", str(new), str(old))
    assert wrong.code == 1 and "encrypted with another key" in wrong.err
    done = rota("--home", str(home), "key", "rotate", str(old), str(new))
    assert done.code == 0 and f"start --key-file {new}`" in done.out
    await SqliteStore(home / "rota.db", sealer=read_key(new)).close()


async def test_what_is_not_encrypted_has_no_key_to_change(rota: Terminal, tmp_path: Path) -> None:
    rota("key", "create", str(tmp_path / "key"))
    await SqliteStore(tmp_path / "rota.db").close()
    refused = rota("--home", str(tmp_path), "key", "rotate", str(tmp_path / "key"), str(tmp_path / "key"))
    assert refused.code == 1 and "its Secrets are not encrypted; start the server with --key-file" in refused.err
