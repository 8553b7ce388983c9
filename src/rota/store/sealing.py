"""Encryption of Secrets at rest, with a key that is not in the file: the file alone reveals no Secret.

The rows of Secrets are sealed one by one with AES-256-GCM, each bound to its name and revision: a row cannot take
the place of another. Other rows are stored in plain, and in memory so are Secrets. The file has an id of the key,
which reveals nothing about it; such a file is not opened without that key.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import os
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from rota.store import sql
from rota.store.errors import StoreCorrupt, StoreError
from rota.store.file import FileLock, open_file
from rota.store.model import Event

SECRETS = "secrets/"
KEY_BYTES = 32
KEY_FILE_BYTES_MAX = 1024
NONCE_BYTES = 12
MAGIC = b"\0rota-sealed-1\0"
"""The prefix of sealed values. Other values are JSON."""


class WrongKey(StoreError):  # noqa: N818
    """The Secrets of a file cannot be read with the given key, or without one."""


class Sealer:
    """Seals and opens rows with one key."""

    def __init__(self, key: bytes) -> None:
        # Few servers have a key, and this takes a while to import.
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        self._cipher: Any = AESGCM(key)
        digest = hashlib.sha256(b"rota key id\0" + key).digest()
        self.id = int.from_bytes(digest[:8]) >> 1
        """The id of the key. It fits into an SQLite integer, and is 0 with a probability of 2^-63."""

    def sealed(self, event: Event) -> Event:
        """Return the event in its stored form."""
        if not event.key.startswith(SECRETS):
            return event
        return replace(event, value=self.seal(event.key, event.rev, event.value), prev=None, cache=None)

    def seal(self, key: str, rev: int, value: bytes) -> bytes:
        nonce = os.urandom(NONCE_BYTES)
        sealed: bytes = self._cipher.encrypt(nonce, value, _place(key, rev))
        return MAGIC + nonce + sealed

    def open(self, key: str, rev: int, value: bytes) -> bytes:
        """Return the plain value. Raises ValueError if it was not sealed with this key at this key and revision."""
        if not key.startswith(SECRETS):
            return value
        if not value.startswith(MAGIC):
            raise ValueError(f"revision {rev} ({key}) is not sealed, as all others are")
        from cryptography.exceptions import InvalidTag

        body = value[len(MAGIC) :]
        try:
            opened: bytes = self._cipher.decrypt(body[:NONCE_BYTES], body[NONCE_BYTES:], _place(key, rev))
        except InvalidTag:
            raise ValueError(f"revision {rev} ({key}) was not sealed there with this key") from None
        return opened


def _place(key: str, rev: int) -> bytes:
    return b"%d %b" % (rev, key.encode())


def prepare(connection: sqlite3.Connection, path: Path, sealer: Sealer | None) -> None:
    """Check that a file is opened with its key. Seal the Secrets of a file without one. Raises WrongKey."""
    known = sql.sealed_with(connection)
    if known and sealer is None:
        raise WrongKey(f"{path}: its Secrets are encrypted; name the file of their key with --key-file")
    if sealer is None or known == sealer.id:
        return
    if known:
        what = f"{path}: its Secrets are encrypted with another key (id {known:x}, not {sealer.id:x})"
        raise WrongKey(f"{what}; name the file of that key with --key-file")
    _seal_all(connection, path, None, sealer)


def rotate(path: Path, old: Sealer, new: Sealer) -> int:
    """Seal the Secrets of a closed store with another key. Return the number of rows."""
    lock = FileLock(path)
    try:
        if not path.exists():
            raise StoreError(f"{path} does not exist: there is nothing to encrypt")
        with closing(open_file(path)) as connection:
            if not sql.sealed_with(connection):
                raise WrongKey(f"{path}: its Secrets are not encrypted; start the server with --key-file to do that")
            prepare(connection, path, old)
            return _seal_all(connection, path, old, new)
    finally:
        lock.release()


def _seal_all(connection: sqlite3.Connection, path: Path, old: Sealer | None, new: Sealer) -> int:
    """Seal all rows of Secrets in one transaction, and remove all traces of the old ones."""
    count = 0
    connection.execute("BEGIN IMMEDIATE")
    try:
        for event, crc in list(sql.stored(connection, SECRETS)):
            if sql.checksum(event) != crc:
                raise StoreCorrupt(path, f"the checksum of revision {event.rev} ({event.key}) is wrong")
            if old is None and event.value.startswith(MAGIC):
                raise ValueError(f"revision {event.rev} ({event.key}) is sealed, and nothing says with which key")
            value = event.value if old is None else old.open(event.key, event.rev, event.value)
            sql.replace_value(connection, replace(event, value=new.seal(event.key, event.rev, value)))
            count += 1
        sql.note_sealed(connection, new.id)
        connection.execute("COMMIT")
    except ValueError as error:
        sql.roll_back(connection)
        raise StoreCorrupt(path, str(error)) from None
    except BaseException:
        sql.roll_back(connection)
        raise
    connection.execute("VACUUM")
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return count


# The file of a key.


def create_key(path: Path) -> None:
    """Write a new key to a new file with mode 600."""
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(base64.b64encode(os.urandom(KEY_BYTES)) + b"\n")
        file.flush()
        os.fsync(file.fileno())


def read_key(path: Path) -> Sealer:
    """Read the key in a file. Raises WrongKey if there is none, or if others may read it."""
    try:
        with path.open("rb") as file:
            mode, text = os.fstat(file.fileno()).st_mode, file.read(KEY_FILE_BYTES_MAX)
    except OSError as error:
        raise WrongKey(f"{path}: the key cannot be read: {(error.strerror or str(error)).lower()}") from None
    if mode & 0o077:
        raise WrongKey(f"{path}: others may read or change this key; chmod 600 it, and consider a new one")
    try:
        key = base64.b64decode(text.strip(), validate=True)
    except binascii.Error:
        key = b""
    if len(key) != KEY_BYTES:
        raise WrongKey(f"{path}: this is no key; `rota key create FILE` makes one")
    return Sealer(key)
