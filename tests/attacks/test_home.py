"""By what a server keeps in its home, and by what is left of what it kept."""

from __future__ import annotations

import base64
import os
import sqlite3
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from rota.server.auth import HomeDamaged
from rota.server.home import Home
from rota.store import SqliteStore, StoreCorrupt, Write
from tests.attacks.conftest import TENANT
from tests.server.conftest import served

SECRETS = f"/api/v1/namespaces/{TENANT}/secrets"
OTHER_UID = 65533


def secret(name: str, value: str) -> dict[str, Any]:
    data = {"key": base64.b64encode(value.encode()).decode()}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "data": data}


def test_to_have_a_server_use_a_folder_of_theirs_as_its_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    if os.geteuid() == 0:
        os.chown(home, OTHER_UID, OTHER_UID)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: OTHER_UID)
    with pytest.raises(HomeDamaged, match=r"belongs to user \d+, and this is user \d+.*--home"):
        Home(home).prepare()
    assert list(home.iterdir()) == []


async def test_to_have_everything_forgotten_by_emptying_the_database(tmp_path: Path) -> None:
    home = tmp_path / "home"
    async with served(home, with_controllers=False) as server:
        assert (await server.ask("POST", "/api/v1/namespaces", {"metadata": {"name": TENANT}})).status == 201
    os.truncate(home / "rota.db", 0)
    with pytest.raises(HomeDamaged, match=r"rota\.db: it is empty, though this home has been in use.*rota restore"):
        async with served(home, with_controllers=False):
            pass
    assert (home / "rota.db").stat().st_size == 0
    # Who means it says so, and one that was never in use is as good as none.
    (home / "rota.db").unlink()
    async with served(home, with_controllers=False):
        pass
    fresh = tmp_path / "fresh"
    fresh.mkdir(mode=0o700)
    (fresh / "rota.db").touch(mode=0o600)
    async with served(fresh, with_controllers=False):
        pass


async def test_to_have_what_was_not_yet_in_the_database_removed_with_it(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    await SqliteStore(path).close()
    path.with_name("store.db-wal").write_bytes(b"what was acknowledged")
    os.truncate(path, 0)
    with pytest.raises(StoreCorrupt, match=r"it is empty, and store\.db-wal is not"):
        SqliteStore(path)
    assert path.with_name("store.db-wal").read_bytes() == b"what was acknowledged"


async def test_to_find_a_deleted_secret_in_a_backup(tmp_path: Path) -> None:
    async with served(tmp_path / "home", with_controllers=False) as server:
        assert (await server.ask("POST", "/api/v1/namespaces", {"metadata": {"name": TENANT}})).status == 201
        for name, value in (("gone", "deleted-" * 900), ("there", "before-" * 900)):
            assert (await server.ask("POST", SECRETS, secret(name, value))).status == 201
        assert (await server.ask("PUT", f"{SECRETS}/there", secret("there", "current-" * 900))).status == 200
        assert (await server.ask("DELETE", f"{SECRETS}/gone")).status == 200
        backup = await server.ask("GET", "/v1/backup")
    assert backup.status == 200
    for text, count in (("current-", 1), ("deleted-", 0), ("before-", 0)):
        assert bool(backup.body.count(base64.b64encode((text * 3).encode()))) == bool(count), text


async def test_to_find_a_deleted_secret_in_the_database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    connect = sqlite3.connect

    def plain(*arguments: Any, **options: Any) -> sqlite3.Connection:
        """As SQLite is in many places: what it deletes stays in the file."""
        connection: sqlite3.Connection = connect(*arguments, **options)
        connection.execute("PRAGMA secure_delete = OFF")
        return connection

    monkeypatch.setattr(sqlite3, "connect", plain)
    store = SqliteStore(tmp_path / "store.db")
    for text in (b"first-secret", b"second-secret"):
        await store.commit([Write("secrets/x/a", None, partial(_much, text))])
    await store.commit([Write("secrets/x/a", None, partial(_much, b""), delete=True)])
    await store.compact(store.revision)
    await store.close()
    assert b"-secret" not in (tmp_path / "store.db").read_bytes()


def _much(text: bytes, rev: int) -> bytes:
    return text * 2000
