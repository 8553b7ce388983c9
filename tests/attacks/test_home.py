"""By what a server keeps in its home, and by what is left of what it kept."""

from __future__ import annotations

import base64
import os
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from rota.cli.backup import _save
from rota.server.auth import HomeDamaged
from rota.server.home import Home
from rota.store import (
    Sealer,
    SqliteStore,
    StoreCorrupt,
    Write,
    WrongKey,
    create_key,
    read_key,
    restore,
    rotate,
    sql,
)
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


@pytest.mark.parametrize("name", ["rota.db", "server.lock", "token.key", "audit.log", "reserve", "ca.crt"])
@pytest.mark.parametrize("way", ["pipe", "folder", "endless", "loop"])
def test_to_have_a_server_wait_for_ever_for_what_is_no_file(tmp_path: Path, name: str, way: str) -> None:
    home, path = tmp_path / "home", tmp_path / "home" / name
    home.mkdir(mode=0o700)
    match way:
        case "pipe":
            os.mkfifo(path)
        case "folder":
            path.mkdir()
        case "endless":
            path.symlink_to("/dev/zero")
        case "loop":
            path.symlink_to(path)
    if way == "endless" and name == "audit.log":
        return  # Whoever wants no trail sends it to a device.
    with pytest.raises(HomeDamaged, match=name.replace(".", r"\.")):
        Home(home).prepare()


async def test_to_have_everything_forgotten_by_emptying_the_database(tmp_path: Path) -> None:
    home = tmp_path / "Home"
    async with served(home, with_controllers=False) as server:
        assert (await server.ask("POST", "/api/v1/namespaces", {"metadata": {"name": TENANT}})).status == 201
    os.truncate(home / "rota.db", 0)
    # The path as it is: its message is the first words, and is not put into another one.
    said = rf"^{home}/rota\.db: it is empty, though this home has been in use.*rota restore FILE"
    with pytest.raises(HomeDamaged, match=said):
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


# Secrets with a key.


async def test_to_read_secrets_in_the_database_or_in_a_backup(tmp_path: Path) -> None:
    home, key, other = tmp_path / "home", tmp_path / "key", tmp_path / "other"
    create_key(key)
    create_key(other)
    async with served(home, with_controllers=False) as server:
        assert (await server.ask("POST", "/api/v1/namespaces", {"metadata": {"name": TENANT}})).status == 201
        assert (await server.ask("POST", SECRETS, secret("old", "early-" * 900))).status == 201
    # What was there before is encrypted, too.
    async with served(home, with_controllers=False, key_file=key) as server:
        assert (await server.ask("POST", SECRETS, secret("new", "later-" * 900))).status == 201
        assert (await server.ask("PUT", f"{SECRETS}/old", secret("old", "early-" * 901))).status == 200
        backup = (await server.ask("GET", "/v1/backup")).body
        stored = backup + b"".join(path.read_bytes() for path in home.glob("rota.db*"))
    for text in ("early-", "later-"):
        assert base64.b64encode((text * 3).encode()) not in stored
    # Without the key, or with another, there is no server.
    for wrong, why in ((None, "its Secrets are encrypted; name the file"), (other, "encrypted with another key")):
        with pytest.raises(WrongKey, match=why):
            async with served(home, with_controllers=False, key_file=wrong):
                pass
    with pytest.raises(WrongKey, match="encrypted with another key"):
        rotate(home / "rota.db", read_key(other), read_key(key))
    assert rotate(home / "rota.db", read_key(key), read_key(other)) >= 2
    with pytest.raises(WrongKey):
        SqliteStore(home / "rota.db", sealer=read_key(key))
    async with served(home, with_controllers=False, key_file=other) as server:
        for name, value in (("old", "early-" * 901), ("new", "later-" * 900)):
            found = (await server.ask("GET", f"{SECRETS}/{name}")).json
            assert base64.b64decode(found["data"]["key"]).decode() == value
    # A backup is put back as any other, and takes the key that it was made with.
    (tmp_path / "backup.db").write_bytes(backup)
    restore(tmp_path / "backup.db", tmp_path / "restored.db")
    with pytest.raises(WrongKey):
        SqliteStore(tmp_path / "restored.db")
    store = SqliteStore(tmp_path / "restored.db", sealer=read_key(key))
    entry = store.get(f"secrets/{TENANT}/new")
    assert entry is not None and base64.b64encode(b"later-" * 900) in entry.value
    await store.close()


async def test_to_put_one_secret_in_the_place_of_another(tmp_path: Path) -> None:
    path, sealer = tmp_path / "store.db", Sealer(bytes(32))
    store = SqliteStore(path, sealer=sealer)
    watching = store.watch("secrets/", 0)
    for name in ("mine", "yours"):
        await store.commit([Write(f"secrets/x/{name}", 0, partial(_much, name.encode()))])
    assert next(iter(await watching.next())).value == b"mine" * 2000
    assert [event.value for event in (await store.read_log("secrets/", 0, 2))[0]] == [b"mine" * 2000, b"yours" * 2000]
    await store.close()

    def put(value: bytes) -> None:
        """As who may write to the file does, with a checksum that is right."""
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            event = next(event for event, _ in sql.stored(connection, "secrets/") if event.key == "secrets/x/yours")
            event.value = value
            sql.replace_value(connection, event)

    with closing(sqlite3.connect(path)) as connection:
        mine, yours = (event.value for event, _ in sql.stored(connection, "secrets/"))
    for value, why in ((mine, "was not sealed there"), (b"{}", "is not sealed, as all others are")):
        put(value)
        with pytest.raises(StoreCorrupt, match=why):
            SqliteStore(path, sealer=sealer)
    put(yours)
    await SqliteStore(path, sealer=sealer).close()


def test_to_have_a_key_that_others_can_read_taken(tmp_path: Path) -> None:
    key = tmp_path / "key"
    create_key(key)
    assert key.stat().st_mode & 0o777 == 0o600
    with pytest.raises(FileExistsError):
        create_key(key)
    key.chmod(0o640)
    with pytest.raises(WrongKey, match="others may read or change this key"):
        read_key(key)
    for content in (b"", b"short", b"!" * 44, base64.b64encode(bytes(31))):
        key.unlink()
        key.touch(mode=0o600)
        key.write_bytes(content)
        with pytest.raises(WrongKey, match="this is no key; `rota key create FILE` makes one"):
            read_key(key)
    with pytest.raises(WrongKey, match="the key cannot be read: no such file"):
        read_key(tmp_path / "missing")


async def test_to_read_a_backup_while_it_is_written(tmp_path: Path) -> None:
    partial, theirs = tmp_path / ".backup.partial", tmp_path / "theirs"

    async def pieces() -> AsyncIterator[bytes]:
        yield b"everything"

    theirs.touch(0o666)
    partial.hardlink_to(theirs)
    await _save(pieces(), partial)
    assert theirs.read_bytes() == b"" and partial.read_bytes() == b"everything"
    partial.unlink()
    partial.symlink_to(theirs)
    await _save(pieces(), partial)
    assert theirs.read_bytes() == b"" and not partial.is_symlink()
