"""The keeper process: its start, the requests it answers, and its end."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rota.runtime.keeper import kernel, protocol
from rota.runtime.keeper.cgroup import Cgroups
from rota.runtime.keeper.cgroup_v1 import Controllers
from rota.runtime.keeper.children import Children
from rota.runtime.keeper.fields import Fields, RequestRefused
from rota.runtime.keeper.leftovers import CannotStart, adopt_records, end_leftovers, owner_of, take_lock
from rota.runtime.keeper.listener import ClientConnection, Listener
from rota.runtime.keeper.loop import Loop
from rota.runtime.keeper.minder import can_unshare_pids
from rota.runtime.keeper.ports import Ports
from rota.runtime.keeper.records import Record, RecordStore

_DISK_RETRY_SECONDS = 1.0
TREES = ("cgroup", "namespace", "sweep")


class KeeperProcess:
    def __init__(
        self,
        home: Path,
        orphan_seconds: float,
        tree: str | None,
        die_with: int | None,
        *,
        has_controllers: bool = True,
    ) -> None:
        companion = None if die_with is None else os.pidfd_open(die_with)
        self._started = time.time()
        self._orphan_seconds = orphan_seconds
        self._folder = home / "keeper"
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._lock = take_lock(self._folder / "lock")
        self._name = protocol.name_of(home)
        owner = owner_of(home)
        self._records = RecordStore(self._folder / "records")
        end_leftovers(self._noted_groups(), self._records, owner)
        kernel.adopt_orphans()
        kernel.set_readable(False)  # this memory, and that of forks, holds the environments of tenants
        self._groups = self._make_groups(owner) if tree in (None, "cgroup") else None
        if tree == "cgroup" and self._groups is None:
            raise CannotStart("no cgroup2 group can be made here")
        if tree == "namespace" and not can_unshare_pids():
            raise CannotStart("no PID namespace can be made here")
        tree = tree or ("cgroup" if self._groups else "namespace" if can_unshare_pids() else "sweep")
        self._loop = Loop()
        self._ports = Ports(self._loop)
        self._controllers = Controllers.make(self._name) if has_controllers else None
        self._children = Children(
            self._loop,
            self._records,
            self._groups,
            self._controllers,
            tree,
            owner,
            home,
            adopt_records(self._records),
            self._notify_watchers,
        )
        self._records.commit()
        self._shutdown_replies: list[Callable[[Any], None]] = []
        self._is_disk_failing = False
        self._servers_changed = 0
        self._listener = Listener(self._loop, self._folder, self._request, self._disconnected)
        if companion is not None:
            self._loop.watch(companion, lambda: self._end_with(companion))

    def run(self) -> None:
        """Run until all children have ended and the keeper is to end."""
        for ignored in (signal.SIGINT, signal.SIGHUP):
            signal.signal(ignored, signal.SIG_IGN)
        self._loop.on_signal(signal.SIGTERM, lambda: self._shut_down(self._grace_seconds))
        self._check_orphaned()
        while not (self._children.is_closing and not self._children.live):
            self._loop.run_once()
            self._commit()
            self._listener.flush()
        self._end()

    def _noted_groups(self) -> Cgroups | None:
        """Return the cgroups of an earlier keeper by its note. They may be in another place than this keeper's."""
        note = self._folder / "cgroup"
        path = Path(note.read_text(errors="replace").replace("\0", "")) if note.is_file() else Path()
        return Cgroups(path) if path.name == self._name else None

    def _make_groups(self, owner: str) -> Cgroups | None:
        groups = Cgroups.make(self._name)
        if groups and groups.leftovers():
            # They belong to a home that was in this place before and was moved with its note.
            end_leftovers(groups, self._records, owner)
            groups = Cgroups.make(self._name)
        if groups:
            (self._folder / "cgroup").write_text(str(groups.path))
        return groups

    # Requests.

    def _request(self, connection: ClientConnection, line: bytes) -> None:
        number: Any = None

        def reply(value: Any) -> None:
            if isinstance(value, RequestRefused):
                connection.send_later({"id": number, "error": {"reason": value.reason, "message": value.message}})
            else:
                connection.send_later({"id": number, "ok": value})

        try:
            request = json.loads(line, parse_constant=_no_constant)
            if not isinstance(request, dict):
                raise ValueError("not an object")
            number = request.get("id")
            self._do(connection, str(request.get("verb")), Fields(request), reply)
        except RequestRefused as refused:
            reply(refused)
        except (ValueError, RecursionError) as error:
            reply(RequestRefused("BadRequest", f"not a request: {error}"))
        except OSError as error:
            reply(RequestRefused("Failed", str(error)))
        except Exception as error:
            # A bug in one request must not end everything that runs.
            _log_error()
            reply(RequestRefused("Failed", f"{type(error).__name__}: {error}"))

    def _do(self, connection: ClientConnection, verb: str, fields: Fields, reply: Callable[[Any], None]) -> None:
        children = self._children
        # Taken even if the request is refused: these descriptors came with it.
        streams = _take_streams(connection) if verb == "exec" else None
        listeners = connection.take_descriptors(fields.integer("count")) if verb == "hold" else []
        if connection.version != protocol.VERSION and verb not in protocol.VERBS_OF_ALL_VERSIONS:
            _close([*(streams or ()), *listeners])
            raise RequestRefused(
                "OtherVersion", f"say hello first, with version {protocol.VERSION}, which this keeper speaks"
            )
        match verb:
            case "hello":
                reply(self._hello(connection, fields))
            case "start":
                children.start(fields, reply)
            case "stop":
                children.stop(fields, reply)
            case "kill":
                children.kill(fields, reply)
            case "signal":
                reply(children.signal(fields))
            case "extend":
                reply(children.extend(fields))
            case "forget":
                reply(children.forget(fields))
            case "list":
                reply({"records": list(children.records.values())})
            case "watch":
                reply({})
                connection.send_later({"event": "snapshot", "records": list(children.records.values())})
                connection.is_watching = True
            case "exec":
                self._exec(connection, fields, streams, reply)
            case "hold":
                self._ports.hold(listeners)
                reply({})
            case "held":
                reply({})
                connection.handed = self._ports.descriptors
            case "allow":
                connection.grace_seconds = fields.number("grace_seconds", protocol.STOP_GRACE_SECONDS)
                reply({})
            case "shutdown":
                grace_seconds = fields.number("grace_seconds", self._grace_seconds)
                self._shutdown_replies.append(reply)
                self._shut_down(grace_seconds)
            case _:
                raise RequestRefused("UnknownVerb", f"this keeper has no verb {verb!r}")

    def _hello(self, connection: ClientConnection, fields: Fields) -> dict[str, Any]:
        connection.version = fields.integer("version")
        self._ports.stop_rejecting()
        self._check_orphaned()
        return {
            "version": protocol.VERSION,
            "pid": os.getpid(),
            "pid_start": kernel.start_time_of(os.getpid()),
            "started": self._started,
            "tree": self._children.tree,
            "set_aside": self._records.set_aside,
            "sets_leases": True,
        }

    def _exec(
        self, connection: ClientConnection, fields: Fields, streams: list[int] | None, reply: Callable[[Any], None]
    ) -> None:
        def exited(event: dict[str, Any]) -> None:
            connection.execs.discard(one)
            connection.send_later({"event": "exec-exited", **event})

        try:
            if streams is None:
                raise RequestRefused("BadRequest", "exec comes with three descriptors: stdin, stdout, stderr")
            one = self._children.exec(fields, (streams[0], streams[1], streams[2]), reply, exited)
            connection.execs.add(one)
        finally:
            _close(streams)

    # Notifications.

    def _notify_watchers(self, event: str, record: Record) -> None:
        for connection in self._listener.connections:
            if connection.is_watching:
                connection.send_later({"event": event, "record": record})

    def _commit(self) -> None:
        """Write records to disk before messages are sent. Retries if the disk fails; clients are answered meanwhile."""
        if self._is_disk_failing:
            return
        try:
            self._records.commit()
        except OSError:
            _log_error()
            self._is_disk_failing = True
            self._loop.after(_DISK_RETRY_SECONDS, self._retry_disk)

    def _retry_disk(self) -> None:
        self._is_disk_failing = False

    # The end.

    @property
    def _grace_seconds(self) -> float:
        allowed = [connection.grace_seconds for connection in self._listener.connections]
        return next((seconds for seconds in allowed if seconds is not None), protocol.STOP_GRACE_SECONDS)

    def _disconnected(self, connection: ClientConnection) -> None:
        for one in connection.execs:  # nobody is left to read its output
            self._children.end_exec(one)
        self._check_orphaned()

    def _check_orphaned(self) -> None:
        """Start the timers that run while there is no server. Called when a server connects or disconnects."""
        self._servers_changed += 1
        since = self._servers_changed
        if not any(connection.version is not None for connection in self._listener.connections):
            self._loop.after(self._orphan_seconds, lambda: self._shut_down_if_unserved(since))
            self._loop.after(protocol.WAIT_FOR_SERVER_SECONDS, lambda: self._reject_if_unserved(since))

    def _reject_if_unserved(self, since: int) -> None:
        if since == self._servers_changed:
            self._ports.reject_connections()

    def _shut_down_if_unserved(self, since: int) -> None:
        if since == self._servers_changed:
            self._shut_down(protocol.STOP_GRACE_SECONDS)

    def _end_with(self, companion: int) -> None:
        self._loop.unwatch(companion)
        self._shut_down(grace_seconds=0)

    def _shut_down(self, grace_seconds: float) -> None:
        self._children.is_closing = True
        for child in list(self._children.live.values()):
            self._children.stop_child(child, grace_seconds)

    def _end(self) -> None:
        """Release the home, and then send the last answers: a client may start the next keeper at once."""
        self._listener.stop()
        self._ports.hold([])
        if self._groups and self._groups.remove():
            (self._folder / "cgroup").unlink(missing_ok=True)
        if self._controllers:
            self._controllers.remove()
        fcntl.flock(self._lock, fcntl.LOCK_UN)
        for reply in self._shutdown_replies:
            reply({})
        self._listener.flush_and_wait()


def _log_error() -> None:
    """Write the current exception to the keeper's log, which may be on the failing disk."""
    with contextlib.suppress(OSError):
        os.write(2, traceback.format_exc().encode(errors="replace"))


def _take_streams(connection: ClientConnection) -> list[int] | None:
    taken, connection.descriptors = connection.descriptors[:3], connection.descriptors[3:]
    if len(taken) == 3:
        return taken
    _close(taken)
    return None


def _close(descriptors: list[int] | None) -> None:
    for descriptor in descriptors or ():
        os.close(descriptor)


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is not JSON")
