"""The paths of everything that belongs to instances in a home, and the ownership of storages."""

from __future__ import annotations

import functools
import json
import os
import shutil
import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import NamedTuple

import msgspec

from rota.runtime import sandbox
from rota.runtime.egress.program import REFUSED
from rota.runtime.interface import Order, Owner, Subject
from rota.runtime.paths import below, text_below
from rota.runtime.private import write_private
from rota.runtime.removing import Removals

INSIDE = "/workspace"
"""The default path, inside an instance, of the instance's folder."""
DIGEST_LENGTH = 16
PRIVATE, PASSABLE = 0o700, 0o711
SALT, SALT_BYTES = "uids.key", 16
"""The file that holds the salt of uids, and its size. Tenants must not know the salt."""


class Entry(NamedTuple):
    """The data by which a command enters a running container. Kept for the next server; only Rota can read it."""

    way: str
    cwd: str
    home: str
    env: Mapping[str, str]
    """The environment of the run. Empty if the note of a runner's box or the engine has it."""
    uid: int | None = None
    name: str = ""
    """The name of the container in the engine; empty without an engine."""


class Launch(NamedTuple):
    """A command for the keeper."""

    argv: Sequence[str]
    env: Mapping[str, str]
    cwd: str = "/"
    wrappers: int = 0
    """The number of processes above the one that gets SIGTERM, counted from the started process."""
    unmet: Sequence[str] = ()
    """Limits that will not be enforced."""


class Places:
    """The folders of a home in which instances are kept.

    `instances/NAMESPACE/NAME-UID` is removed with the instance. `storage/NAMESPACE/NAME` stays for the next instance of
    the same owner and ordinal; files beside it name its owner, and the tree prepared in it.
    """

    def __init__(self, home: Path) -> None:
        self.home = home.absolute()
        self._instances = self.home / "instances"
        self._instances_text = str(self._instances)
        self._storage = self.home / "storage"
        self.tasks = self.home / "tasks"
        """The folder of the logs and results of tasks, by namespace."""
        # Held while the owner of a storage is read and changed, so that no other owner's is removed.
        self._changing_hands = threading.Lock()
        self._removals = Removals()
        # Existing files have uids made without a salt, which must not change.
        self._is_new = not (self._instances.exists() or self._storage.exists())

    def folder(self, subject: Subject) -> Path:
        return Path(self._text(subject))

    def log(self, subject: Subject, container: str) -> Path:
        """Return the path of a container's log, without its suffix."""
        return Path(self.log_text(subject, container))

    def log_text(self, subject: Subject, container: str) -> str:
        """Return the path of a container's log, without its suffix, as text for frequent callers."""
        return self._text(subject, "logs", container)

    def _text(self, subject: Subject, *names: str) -> str:
        return text_below(self._instances_text, subject.namespace, f"{subject.name}-{subject.uid}", *names)

    def scratch(self, subject: Subject, container: str) -> Path:
        return below(self.folder(subject), f"sandbox-{container}")

    def box_scratch(self, subject: Subject, digest: str) -> Path:
        """Return the scratch folder of a runner's box. Removes older ones except the newest, which may be in use."""
        top = self.folder(subject) / "boxes"
        older = sorted(top.glob("*"), key=lambda one: one.stat().st_mtime)[:-1]
        for folder in older:
            shutil.rmtree(folder, ignore_errors=True)
        return top / digest[:DIGEST_LENGTH]

    def refused_egress(self, subject: Subject) -> list[Path]:
        """Return the files in which the proxies of an instance write their refusals."""
        return [path for place in ("sandbox-*", "boxes/*") for path in self.folder(subject).glob(f"{place}/{REFUSED}")]

    def volumes(self, subject: Subject, container: str) -> Path:
        return below(self.folder(subject), f"volumes-{container}")

    def box(self, subject: Subject) -> Path:
        """Return the path of the file in which a runner notes which box runs."""
        return self.folder(subject) / "box"

    def remove(self, subject: Subject) -> Future[bool] | None:
        """Move the folder of an instance aside, and remove it in the background. Returns None if it has no folder."""
        return self._finish(self._put_aside(self.folder(subject)))

    def strays(self, but: Collection[Subject]) -> list[Path]:
        """Move aside the folders of all instances except `but`. Return all folders that are aside."""
        kept = {self.folder(subject) for subject in but}
        for namespace in _entries(self._instances):
            if not _is_folder(namespace):
                self._put_aside(namespace)
                continue
            for folder in _entries(namespace):
                if folder not in kept:
                    self._put_aside(folder)
        return list((self.home / "discarded").glob("*"))

    def discard_all(self, asides: Sequence[Path]) -> list[Future[bool]]:
        return [self._removals.add(aside) for aside in asides]

    # Ways into containers.

    def enter(self, subject: Subject, container: str) -> Entry | None:
        try:
            return Entry(**json.loads(self._entry(subject, container).read_text()))
        except (OSError, ValueError, TypeError):
            return None

    def entries(self, subject: Subject) -> list[Entry]:
        """Return the entries of all containers of an instance."""
        names = [path.name[len("entry-") : -len(".json")] for path in self.folder(subject).glob("entry-*.json")]
        return [entry for name in names if (entry := self.enter(subject, name)) is not None]

    def write_entry(self, subject: Subject, container: str, entry: Entry) -> None:
        write_private(self._entry(subject, container), json.dumps(entry._asdict()).encode())

    def _entry(self, subject: Subject, container: str) -> Path:
        return below(self.folder(subject), f"entry-{container}.json")

    # Storages.

    def work(self, order: Order) -> Path:
        """Return the folder of an instance on the host, which may not exist yet."""
        if order.storage_name:
            return below(self._storage, order.subject.namespace, order.storage_name)
        return self.folder(order.subject) / "work"

    def bound(self, subject: Subject) -> Path:
        """Return the path of the file that holds an instance's disk bound."""
        return self.folder(subject) / "bound.json"

    def storage(self, order: Order) -> tuple[Path, str]:
        """Return the folder of an instance, made if missing, and its path inside the instance."""
        folder = self.work(order)
        if order.storage_name:
            self._claim(folder, order.storage_owner)
        folder.mkdir(parents=True, exist_ok=True, mode=PASSABLE)
        return folder, order.storage_path or INSIDE

    def record(self, order: Order) -> Path:
        folder, _ = self.storage(order)
        return folder.with_name(f"{folder.name}.prepared")

    def uid(self, order: Order) -> int | None:
        """Return the uid of an instance, or None if Rota is not root: then the instance has Rota's uid."""
        if os.getuid() != 0:
            return None
        return sandbox.uid_of(f"{order.subject.namespace}/{order.storage_name or order.subject.name}", self._salt)

    @functools.cached_property
    def _salt(self) -> bytes:
        with self._changing_hands:
            path = self.home / SALT
            try:
                return path.read_bytes()
            except FileNotFoundError:
                salt = os.urandom(SALT_BYTES) if self._is_new else b""
                self.home.mkdir(parents=True, exist_ok=True, mode=PRIVATE)
                write_private(path, salt)
                return salt

    def _claim(self, folder: Path, owner: Owner | None) -> None:
        """Record the owner of a storage. A storage that belongs to another owner is moved aside first."""
        mark = _mark(folder)
        aside = None
        with self._changing_hands:
            found = _owner(mark)
            if found != owner:
                aside = self._put_aside(folder)
            mark.parent.mkdir(parents=True, exist_ok=True, mode=PRIVATE)
            if owner is not None and found != owner:
                new = mark.with_suffix(".new")
                new.write_bytes(msgspec.json.encode(owner))
                new.replace(mark)
        self._finish(aside)

    def storages(self) -> Iterator[tuple[str, str, Owner]]:
        """Yield the namespace, name and owner of all storages."""
        marks = (mark for namespace in _entries(self._storage) if _is_folder(namespace) for mark in _entries(namespace))
        for mark in marks:
            owner = _owner(mark) if mark.suffix == ".owner" else None
            if owner is not None:
                yield mark.parent.name, mark.name.removesuffix(".owner"), owner

    def drop(self, namespace: str, name: str, owner: Owner) -> Future[bool] | None:
        """Move a storage aside, and remove it in the background. Returns None if it is gone or has another owner."""
        folder = below(self._storage, namespace, name)
        with self._changing_hands:
            if _owner(_mark(folder)) != owner:
                return None
            aside = self._put_aside(folder)
            _mark(folder).unlink(missing_ok=True)
        return self._finish(aside)

    def _put_aside(self, folder: Path) -> Path | None:
        """Move a folder, or whatever has this path, aside. Return its new path, or None if it did not exist."""
        for what in ("prepared", "prepared.new"):
            folder.with_name(f"{folder.name}.{what}").unlink(missing_ok=True)
        if not os.path.lexists(folder):
            return None
        aside = self.home / "discarded" / f"{folder.parent.name}-{folder.name}-{os.urandom(6).hex()}"
        aside.parent.mkdir(exist_ok=True, mode=PRIVATE)
        return folder.rename(aside)

    def _finish(self, aside: Path | None) -> Future[bool] | None:
        """Remove a folder that was moved aside, in the background."""
        return None if aside is None else self._removals.add(aside)


def _entries(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []


def _is_folder(path: Path) -> bool:
    """Report whether a path is a folder and not a link, which could lead out of the home."""
    return path.is_dir() and not path.is_symlink()


def _mark(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}.owner")


def _owner(mark: Path) -> Owner | None:
    try:
        return msgspec.json.decode(mark.read_bytes(), type=Owner)
    except (OSError, msgspec.MsgspecError):
        return None
