"""`$ROTA_HOME`: the folder of one server, and its files."""

from __future__ import annotations

import base64
import contextlib
import fcntl
import os
import re
import stat
import struct
import weakref
from collections.abc import Iterator
from pathlib import Path

import msgspec

from rota.server.auth import HomeDamaged, Tokens, rewrite_private

ADMIN = "rota-admin"
SOCKET_PATH_BYTES_MAX = 107
"""The longest path of a Unix socket."""
FILES = re.compile(r".*\.(db|db-wal|db-shm|lock|json|crt|key|log)|kubeconfig|reserve")
"""Names of files that a server opens while it starts."""
_LOCK = "hhqqi4x"
"""Linux's `struct flock`: type, whence, start, length, pid."""


class Home:
    """The folder. Only its owner may read it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.store = path / "rota.db"
        self.tokens = path / "tokens.json"
        self.kubeconfig = path / "kubeconfig"
        self.socket = path / "rota.sock"
        self.audit = path / "audit.log"
        self.ca = path / "ca.crt"
        self.lock = path / "server.lock"
        self.worker_key = path / "worker.key"

    def prepare(self) -> None:
        if len(os.fsencode(self.socket)) > SOCKET_PATH_BYTES_MAX:
            raise HomeDamaged(f"{self.socket} is too long for a socket's path; choose a shorter home with --home")
        with usable(self.path):
            self.path.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._check()
            if self.path.stat().st_mode & 0o077:
                self.path.chmod(0o700)
            self._sign()

    def _check(self) -> None:
        """Raise HomeDamaged if the home belongs to another user, or its store was emptied."""
        found, own = self.path.stat(), os.geteuid()
        if found.st_uid != own:
            why = f"it belongs to user {found.st_uid}, and this is user {own}: its owner could change all that is in it"
            raise HomeDamaged(f"{self.path} cannot be a home: {why}; start as its owner, or choose another with --home")
        for path in filter(lambda path: FILES.fullmatch(path.name), self.path.iterdir()):
            self._check_file(path)
        if self.tokens.exists() and self.store.exists() and not self.store.stat().st_size:
            why = "it is empty, though this home has been in use: all objects would be gone"
            then = f"put a backup back with `rota restore FILE`, or remove {self.store} to begin anew"
            raise HomeDamaged(f"{self.store}: {why}; {then}")

    def _check_file(self, path: Path) -> None:
        """Raise HomeDamaged unless a path is a regular file: opening a pipe would block, and a device may never end."""
        with contextlib.suppress(FileNotFoundError):
            mode = path.stat().st_mode
            is_log = path.suffix == ".log" and stat.S_ISCHR(mode)  # A link to /dev/null or /dev/stderr, for example.
            if not stat.S_ISREG(mode) and not is_log:
                why = "it is no file, and the server keeps one there"
                raise HomeDamaged(f"{path}: {why}; move it away, or put back a copy of the file")

    def _sign(self) -> None:
        """Hold a lock as long as this object lives, so that others can find the serving process.

        The store's lock does not show it, because a restore holds that, too. If another server holds this lock already,
        the store refuses to open.
        """
        descriptor = os.open(self.lock, os.O_RDWR | os.O_CREAT, 0o600)
        with contextlib.suppress(BlockingIOError, PermissionError):
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        weakref.finalize(self, os.close, descriptor)

    def server_pid(self) -> int | None:
        """Return the process that serves this home; 0 if it is in another PID namespace, None if there is none.

        The serving process itself must not call this: closing the file would release its lock.
        """
        try:
            descriptor = os.open(self.lock, os.O_RDONLY)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise _unusable(self.path, error) from None
        try:
            wanted = struct.pack(_LOCK, fcntl.F_RDLCK, os.SEEK_SET, 0, 0, 0)
            kind, _, _, _, pid = struct.unpack(_LOCK, fcntl.fcntl(descriptor, fcntl.F_GETLK, wanted))
        finally:
            os.close(descriptor)
        return None if kind == fcntl.F_UNLCK else int(pid)

    def remove_stale_socket(self) -> None:
        """Remove the socket of a killed server. The store's lock shows that no server is alive."""
        self.socket.unlink(missing_ok=True)

    async def write_kubeconfig(self, tokens: Tokens, url: str) -> None:
        """Write a kubeconfig with an admin token. A token that is still valid is kept."""
        known = self._token(tokens)
        secret = known or tokens.create(ADMIN, "admin")[0]
        await tokens.save()
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "rota",
            "clusters": [{"name": "rota", "cluster": {"server": url, "certificate-authority-data": _data(self.ca)}}],
            "users": [{"name": ADMIN, "user": {"token": secret}}],
            "contexts": [{"name": "rota", "context": {"cluster": "rota", "user": ADMIN, "namespace": "default"}}],
        }
        # JSON is YAML, and needs no YAML writer at every start.
        rewrite_private(self.kubeconfig, msgspec.json.format(msgspec.json.encode(config), indent=2) + b"\n")

    def _token(self, tokens: Tokens) -> str:
        try:
            text = self.kubeconfig.read_bytes()
        except OSError:
            return ""
        # kubectl writes YAML when it changes the file. Only the token is needed.
        found = re.search(rb'token"?: *"?(rota-[-_A-Za-z0-9]+)', text)
        secret = found[1].decode() if found else ""
        user = tokens.user(secret)
        return secret if user is not None and user.scope == "admin" else ""


@contextlib.contextmanager
def usable(home: Path) -> Iterator[None]:
    """Explain errors of the system to the user who chose the home."""
    try:
        yield
    except HomeDamaged:
        raise
    except OSError as error:
        raise _unusable(home, error) from None


def _unusable(home: Path, error: OSError) -> HomeDamaged:
    why = (error.strerror or str(error)).lower()
    return HomeDamaged(f"{home} cannot be a home: {error.filename}: {why}; choose another with --home")


def _data(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()
