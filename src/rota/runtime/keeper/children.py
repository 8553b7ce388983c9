"""Everything that runs under this keeper, from its start to its verified end."""

from __future__ import annotations

import contextlib
import itertools
import os
import resource
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rota.runtime.keeper import closed_addresses, kernel, protocol
from rota.runtime.keeper.cgroup import Cgroups
from rota.runtime.keeper.cgroup_v1 import ControllerGroups, Controllers
from rota.runtime.keeper.child import Child, Exec, Lease, Reply, exit_of
from rota.runtime.keeper.fields import Fields, RequestRefused
from rota.runtime.keeper.limit_watch import WATCHED, LimitWatch
from rota.runtime.keeper.log_file import LogFile
from rota.runtime.keeper.loop import Loop
from rota.runtime.keeper.minder import END_SIGNAL, FORWARDED, kill_descendants_of, send
from rota.runtime.keeper.program import ProcessPlan
from rota.runtime.keeper.records import Record, RecordStore
from rota.runtime.keeper.spawn import RLIMITS, protect_from_oom_killer, rlimits_for, spawn

_READ_BYTES = 65536
# The most that a pipe holds, unless root enlarged it: read after all its writers have ended.
_DRAIN_BYTES_MAX = 1024 * 1024
_TREE_CHECK_SECONDS = 0.005
_TREE_CHECK_SECONDS_MAX = 0.1
_MINDER_SECONDS_MAX = 2.0
_LEASE_CHECK_SECONDS = 0.5
# A child's log and output, and its report while it starts; the rest is for everything else.
_DESCRIPTORS_A_CHILD = 3
_DESCRIPTORS_KEPT = 256


class Children:
    def __init__(
        self,
        loop: Loop,
        store: RecordStore,
        groups: Cgroups | None,
        controllers: Controllers | None,
        tree: str,
        owner: str,
        home: Path,
        records: dict[str, Record],
        notify: Callable[[str, Record], None],
    ) -> None:
        self._loop = loop
        self._watchdog = LimitWatch(loop, self._end_tree)
        self._controllers = controllers
        self._store = store
        self._groups = groups
        self.tree = tree
        self._owner = owner
        self._home = home
        self.records = records
        self.live: dict[str, Child] = {}
        self._notify = notify
        self.is_closing = False
        self._by_pid: dict[int, Child | Exec] = {}
        self._exec_numbers = itertools.count(1)
        self._is_lease_check_due = False
        self._nofile = resource.getrlimit(resource.RLIMIT_NOFILE)
        self._oom_score = protect_from_oom_killer()
        self._null = os.open(os.devnull, os.O_RDWR)
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (self._nofile[1], self._nofile[1]))
        descriptors = resource.getrlimit(resource.RLIMIT_NOFILE)[0] - _DESCRIPTORS_KEPT
        self._children_max = min(protocol.CHILDREN_MAX, max(descriptors // _DESCRIPTORS_A_CHILD, 1))
        loop.on_signal(signal.SIGCHLD, self._reap)

    # Requests.

    def start(self, fields: Fields, reply: Reply) -> None:
        key, run = fields.text("key", protocol.KEY_CHARS_MAX), fields.text("run", protocol.RUN_CHARS_MAX)
        child, record = self.live.get(key), self.records.get(key)
        if child and child.record["run"] == run and not child.is_started:
            child.starting.append(reply)
            return
        if record and record["run"] == run:
            reply(record)
            return
        if child:
            raise RequestRefused("AlreadyRuns", f"{key} runs already, as run {child.record['run']}: stop it first")
        if self.is_closing:
            raise RequestRefused("ShuttingDown", "the keeper is stopping everything")
        self._check_child_share(key)
        if key not in self.records and len(self.records) >= protocol.RECORDS_MAX:
            raise RequestRefused("TooMany", f"{protocol.RECORDS_MAX} records are kept already: forget some")
        self._start(key, run, fields).starting.append(reply)

    def stop(self, fields: Fields, reply: Reply) -> None:
        grace = fields.number("grace_seconds", protocol.STOP_GRACE_SECONDS)
        if child := self._child_to_end(fields, reply):
            self.stop_child(child, grace)

    def kill(self, fields: Fields, reply: Reply) -> None:
        if child := self._child_to_end(fields, reply):
            self._end_tree(child)

    def signal(self, fields: Fields) -> dict[str, Any]:
        number = fields.integer("signal")
        if number not in (*FORWARDED, signal.SIGKILL):
            raise RequestRefused(
                "BadRequest", f"signal {number} cannot be sent: take one of {[int(n) for n in FORWARDED]}"
            )
        child = self.live.get(fields.text("key", protocol.KEY_CHARS_MAX))
        target: Child | Exec | None = child
        if child and (name := fields.optional_text("exec")):
            target = next((one for one in child.execs if one.name == name), None)
        if child is None or target is None or child.status is not None:
            raise RequestRefused("NotFound", "it does not run")
        if target.minded and number == signal.SIGKILL:
            number = END_SIGNAL
        send(target.pid, number, target.minded)
        return {}

    def extend(self, fields: Fields) -> dict[str, Any]:
        """Set the leases of children in seconds, or lift them. `unleased`: leave children alone that have a lease."""
        is_for_unleased = fields.flag("unleased")
        for key, seconds in fields.leases().items():
            child = self.live.get(key)
            if child is not None and not (is_for_unleased and child.lease is not None):
                child.lease = None if seconds is None else Lease(seconds)
        self._schedule_lease_check()
        return {}

    def forget(self, fields: Fields) -> dict[str, Any]:
        key = fields.text("key", protocol.KEY_CHARS_MAX)
        if key in self.live:
            raise RequestRefused("StillRuns", f"{key} runs: stop it first")
        record = self.records.get(key)
        run = fields.optional_text("run")
        if record and run in (None, record["run"]):
            del self.records[key]
            self._store.drop(key)
        return {}

    def exec(
        self, fields: Fields, streams: tuple[int, int, int], reply: Reply, exited: Callable[[dict[str, Any]], None]
    ) -> Exec:
        key = fields.text("key", protocol.KEY_CHARS_MAX)
        child = self.live.get(key)
        if child is None or not child.is_started or child.status is not None:
            raise RequestRefused("NotFound", f"{key} does not run")
        self._check_exec_share(key)
        plan = ProcessPlan(
            argv=fields.argv(),
            env=fields.env(),
            cwd=fields.text("cwd"),
            streams=streams,
            uid=child.record["uid"],
            gid=child.record["gid"],
            rlimits=child.rlimits,
            group_files=child.group_files,
            minded=True,
            minder_arguments=(str(self._home), key),
            tty=fields.flag("tty"),
            oom_score=self._oom_score,
        )
        started = Exec(f"exec-{next(self._exec_numbers)}", child, plan.minded, exited)
        started.reply = reply
        self._spawn(started, plan)
        child.execs.add(started)
        return started

    def _check_child_share(self, key: str) -> None:
        """Refuse another container if the keeper or its tenant's share is full."""
        tenant = _tenant(key)
        own = sum(_tenant(one) == tenant for one in self.live)
        _check_share("containers", tenant, own, len(self.live), self._children_max, protocol.CHILDREN_LEAST)

    def _check_exec_share(self, key: str) -> None:
        """Refuse another command if the keeper or its tenant's share is full."""
        tenant = _tenant(key)
        count = sum(isinstance(one, Exec) for one in self._by_pid.values())
        own = sum(len(child.execs) for one, child in self.live.items() if _tenant(one) == tenant)
        _check_share("commands", tenant, own, count, protocol.EXECS_MAX, protocol.EXECS_LEAST)

    def end_exec(self, one: Exec) -> None:
        if one.pid in self._by_pid:
            send(one.pid, END_SIGNAL if one.minded else signal.SIGKILL, one.minded)

    def stop_child(self, child: Child, grace_seconds: float) -> None:
        if not child.is_stopping and child.status is None:
            child.is_stopping = True
            self._ask_to_end(child)
        self._loop.after(grace_seconds, lambda: self._end_tree(child))

    def _ask_to_end(self, child: Child) -> None:
        if not child.program_depth:
            send(child.pid, signal.SIGTERM, child.minded)
            return
        # The wrappers ignore SIGTERM, and would kill the program without a warning if they got it.
        program = kernel.first_below(child.pid, child.program_depth)
        if program is not None:
            send(program, signal.SIGTERM, minded=True)

    def _child_to_end(self, fields: Fields, reply: Reply) -> Child | None:
        """Return the child to end, and reply to the caller at its end. Returns None, after a reply, if it has ended."""
        key, run = fields.text("key", protocol.KEY_CHARS_MAX), fields.optional_text("run")
        child = self.live.get(key)
        record = child.record if child else self.records.get(key)
        if record is None:
            raise RequestRefused("NotFound", f"{key} is not known here")
        if run not in (None, record["run"]):
            raise RequestRefused("OtherRun", f"{key} is now run {record['run']}, not {run}")
        if child is None:
            reply(record)
            return None
        child.waiting.append(reply)
        return child

    # Starting.

    def _start(self, key: str, run: str, fields: Fields) -> Child:
        limits, unmet, nets = fields.limits(), fields.unmet(), fields.closed()
        uid, gid = fields.user() or (None, None)
        prefix, bytes_max, files_max = fields.group("log").log()
        argv, env, cwd = fields.argv(), fields.env(), fields.text("cwd")
        lease = fields.optional_number("lease_seconds")
        wants_namespace = fields.flag("pid_namespace") or (self.tree == "namespace" and not fields.flag("host_pids"))
        with contextlib.ExitStack() as undo:
            tenant = protocol.hash_of(_tenant(key))
            group = self._groups.group(protocol.hash_of(key), tenant) if self._groups else None
            if group:
                undo.callback(group.remove)
            closed = group is not None and bool(nets) and closed_addresses.close(group.path, nets)
            held = group.limit(limits) if group and self._controllers else []
            rest = {name: value for name, value in limits.items() if name not in held}
            limited = (
                self._controllers.hold(protocol.hash_of(key), rest, tenant=tenant)
                if self._controllers
                else ControllerGroups()
            )
            undo.callback(limited.remove)
            held += limited.paths
            watched = {name: limits[name] for name in WATCHED if name in limits and name not in held}
            rlimits = rlimits_for({name: int(limits[name]) for name in limits if name not in held}, uid, self._nofile)
            log = LogFile(prefix, bytes_max, files_max)
            undo.callback(log.close)
            output, output_write = os.pipe()
            undo.callback(os.close, output)
            os.set_blocking(output, False)
            record = {
                "key": key,
                "run": run,
                "pid": 0,
                "pid_start": 0,
                "state": "running",
                "started": time.time(),
                "exit": None,
                "tree": self.tree,
                "owner": self._owner,
                "uid": uid,
                "gid": gid,
                "closed": closed,
                "limits_unmet": sorted({*unmet, *(set(limits) - set(held) - set(rlimits) - set(watched))}),
                "log": {"path_prefix": prefix, "bytes_max": bytes_max, "files_max": files_max},
            }
            plan = ProcessPlan(
                argv=argv,
                env=env,
                cwd=cwd,
                streams=(self._null, output_write, output_write),
                uid=uid,
                gid=gid,
                rlimits={resource.RLIMIT_NOFILE: self._nofile, **{RLIMITS[name]: rlimits[name] for name in rlimits}},
                group_files=(*([group.procs_file] if group else ()), *limited.procs_files),
                minded=wants_namespace or group is None,
                minder_arguments=(str(self._home), key),
                new_namespace=wants_namespace,
                wrappers=int(fields.number("wrappers", 0)),
                oom_score=self._oom_score,
            )
            child = Child(record, log, output, group, limited, plan)
            try:
                self._spawn(child, plan)
            finally:
                os.close(output_write)
            undo.pop_all()
        self.live[key] = child
        if lease is not None:
            child.lease = Lease(lease)
            self._schedule_lease_check()
        self._watchdog.watch(child, watched)
        self._loop.watch(output, lambda: self._read_output(child))
        return child

    def _spawn(self, one: Child | Exec, plan: ProcessPlan) -> None:
        one.pid, report = spawn(plan)
        one.pid_start = kernel.start_time_of(one.pid)  # before it can have been reaped
        one.report = report
        self._by_pid[one.pid] = one
        self._loop.watch(report, lambda: self._read_report(one))

    def _read_report(self, one: Child | Exec) -> None:
        """Read the report of a fork: its text is an error; an end without text means that the program runs."""
        assert one.report is not None
        try:
            while data := os.read(one.report, _READ_BYTES):
                one.failure += data
        except BlockingIOError:
            return
        self._close_report(one)
        if not one.failure:
            self._started(one)

    def _close_report(self, one: Child | Exec) -> None:
        if one.report is not None:
            self._loop.unwatch(one.report)
            os.close(one.report)
            one.report = None

    def _started(self, one: Child | Exec) -> None:
        one.is_started = True
        if isinstance(one, Exec):
            if one.reply:
                one.reply({"exec": one.name, "pid": one.pid})
            return
        record = one.record
        record["pid"], record["pid_start"] = one.pid, one.pid_start
        self.records[record["key"]] = record
        self._store.put(record)
        self._notify("started", record)
        for reply in one.starting:
            reply(record)
        one.starting.clear()

    # Running.

    def _read_output(self, child: Child) -> None:
        assert child.output is not None
        try:
            data = os.read(child.output, _READ_BYTES)
        except BlockingIOError:
            return
        if data:
            child.log.write(data)
        else:
            self._close_output(child)

    def _close_output(self, child: Child) -> None:
        if child.output is not None:
            self._loop.unwatch(child.output)
            os.close(child.output)
            child.output = None

    def _schedule_lease_check(self) -> None:
        # Checked at an interval, not once at the earliest end: a timer stands still while the machine is suspended.
        if not self._is_lease_check_due:
            self._is_lease_check_due = True
            self._loop.after(_LEASE_CHECK_SECONDS, self._check_leases)

    def _check_leases(self) -> None:
        self._is_lease_check_due = False
        leased = [child for child in self.live.values() if child.lease is not None]
        for child in leased:
            if child.lease is not None and child.lease.has_ended and child.status is None:
                child.record["why"] = protocol.LEASE_ENDED
                self._end_tree(child)
        if leased:
            self._schedule_lease_check()

    # Ending.

    def _end_tree(self, child: Child) -> None:
        if child.status is not None:
            return
        if child.group:
            child.group.kill()
            # It may not have joined its cgroup yet.
            with contextlib.suppress(ProcessLookupError):
                os.kill(child.pid, signal.SIGKILL)
            return
        for one in child.execs:
            self.end_exec(one)
        send(child.pid, END_SIGNAL, minded=True)
        self._loop.after(_MINDER_SECONDS_MAX, lambda: self._end_minder(child))

    def _end_minder(self, child: Child) -> None:
        if child.status is None:
            send(child.pid, signal.SIGKILL, minded=True)

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            one = self._by_pid.pop(pid, None)
            if one is None:
                continue  # an orphan of some tree
            if one.report is not None:
                self._read_report(one)
                self._close_report(one)
            if not one.is_started and not one.failure:
                self._started(one)
            if isinstance(one, Exec):
                self._exec_ended(one, status)
            else:
                one.status = status
                self._finish_tree(one, _TREE_CHECK_SECONDS)

    def _exec_ended(self, one: Exec, status: int) -> None:
        one.child.execs.discard(one)
        if one.failure:
            if one.reply:
                one.reply(RequestRefused("StartFailed", one.failure.decode(errors="replace")))
            return
        one.exited({"exec": one.name, "key": one.child.record["key"], "exit": exit_of(status)})

    def _finish_tree(self, child: Child, pause: float) -> None:
        """Kill the processes that the program left, and check again until none is alive."""
        for one in child.execs:
            self.end_exec(one)
            if pause >= _TREE_CHECK_SECONDS_MAX:  # perhaps a minder that was stopped
                send(one.pid, signal.SIGKILL, one.minded)
        if self._is_tree_alive(child) or child.execs:
            self._loop.after(pause, lambda: self._finish_tree(child, min(pause * 2, _TREE_CHECK_SECONDS_MAX)))
            return
        child.record["oom"] = child.record.get("oom") or child.limited.was_out_of_memory()
        if (child.group and not child.group.remove()) or not child.limited.remove():
            self._loop.after(pause, lambda: self._finish_tree(child, min(pause * 2, _TREE_CHECK_SECONDS_MAX)))
            return
        if self._groups:
            self._groups.forget(protocol.hash_of(_tenant(child.record["key"])))
        self._finish(child)

    def _is_tree_alive(self, child: Child) -> bool:
        """Kill the processes that are left of a tree. Report whether there were any."""
        if child.group:
            if not child.group.is_populated():
                child.record["oom"] = child.record.get("oom") or child.group.was_out_of_memory()
                return False
            child.group.kill()
            return True
        # A minder ends after its tree. The keeper inherits a tree only if its minder was killed.
        return kill_descendants_of(os.getpid(), but=self._by_pid)

    def _finish(self, child: Child) -> None:
        drained = 0
        while child.output is not None and drained < _DRAIN_BYTES_MAX:
            try:
                data = os.read(child.output, _READ_BYTES)
            except BlockingIOError:
                break
            if not data:
                break
            child.log.write(data)
            drained += len(data)
        self._close_output(child)
        child.log.close()
        record, key = child.record, child.record["key"]
        del self.live[key]
        if child.failure:
            problem = RequestRefused("StartFailed", f"{key} cannot start: {child.failure.decode(errors='replace')}")
            for reply in (*child.starting, *child.waiting):
                reply(problem)
            return
        assert child.status is not None
        record["state"] = "exited"
        why = {"oom": bool(record.pop("oom", False)), "reason": record.pop("why", None)}
        record["exit"] = {**exit_of(child.status), **why}
        record["log_bytes_lost"] = child.log.bytes_lost
        self._store.put(record)
        self._notify("exited", record)
        for reply in child.waiting:
            reply(record)


def _tenant(key: str) -> str:
    return key.partition("/")[0]


def _check_share(resource_name: str, tenant: str, own: int, count: int, most: int, least: int) -> None:
    """Refuse one more if all `most` are in use, or if the tenant has as many as are left for all others."""
    left = most - count
    if left <= 0:
        raise RequestRefused("TooMany", f"{most} {resource_name} run already, which is the most: stop some first")
    if own >= max(least, left):
        why = f"{own} {resource_name} of {tenant} run already, which is its share while {count} run"
        raise RequestRefused("TooMany", f"{why} of {most} that can")
