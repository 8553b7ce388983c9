"""The watchdog: measures how much of the disk instances use, and reports those that use more than they may.

It measures the folder of an instance, and files without a name that its processes hold open. It uses a small share of
one processor while there is space, and as much as it needs while space shrinks or is short.

- `StorageExceeded`: an instance has more than its storage's size; without storage, more than `SCRATCH_BYTES_MAX`.
- `DiskPressure`: the disk is short, and the instance uses most of all that have no promised size. If the disk is short
  of inodes, a storage is promised its share of them, by its size.

Files that are moved during a measurement may be missed. An instance that keeps doing so is stopped (SIGSTOP) while it
is measured.

Instances of one tenant are measured one after the other, tenants in parallel: a tenant with millions of files delays no
other.

It ends no instance itself: it notifies its listener, which calls `over`.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import threading
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec

from rota.runtime.disk import Disk
from rota.runtime.freezing import RESTLESS_MAX, RESTLESS_WHY, frozen, thaw
from rota.runtime.interface import Overuse, Subject
from rota.runtime.measuring import FILE_BYTES_MIN, NotMeasurable, Used, used
from rota.runtime.nameless import DESCRIPTORS_MAX, nameless_bytes
from rota.runtime.space import MIB, low_bytes, low_inodes

log = logging.getLogger(__name__)

SCRATCH_BYTES_MAX = 10 * 1024 * MIB
"""The most bytes that an instance without storage may have in its folder."""
MEASURE_SECONDS = 2.0
"""The least seconds between two rounds."""
SHARE = 0.05
"""The largest share of a processor that measuring takes, unless there is hurry."""
HURRY_BYTES = 64 * MIB
"""Measuring hurries when the disk has lost so much free space since the last round."""
PRESSURE_SECONDS = 1.0
"""The least seconds between two reports of DiskPressure. The space of the first has to be freed before the next."""
BREATH_SECONDS_MAX = 0.5
UNSURE_ROUNDS = 2
"""After so many rounds that may have missed files, an instance is stopped while it is measured."""
FROZEN_SHARE, FROZEN_SHARE_HURRY = 0.05, 0.3
"""The largest share of its time for which an instance may be stopped, without and with hurry."""
FROZEN_SECONDS_MAX = 30.0
"""The most seconds that the measurement of a stopped instance takes. A longer one fails."""
FROZEN = "frozen"
"""The file in the home that lists the stopped processes, for the next server."""
NAMELESS_ROUNDS = 5
"""Unless there is hurry, files without a name are measured once in so many rounds: all processes are inspected."""

ROUND_SECONDS_MAX = 5.0
"""The most seconds for which a round waits for measurements. Longer ones continue during the next rounds."""
TENANTS_AT_ONCE_MAX = 16
"""The most tenants that are measured at once."""

UNSEEN_LOOKS_MAX = 3
"""The most looks in a row that may find files in flight to a connection which the instance has not accepted."""


class Bound(msgspec.Struct):
    """The folder of an instance and its disk bound. Kept on disk for the next server."""

    folder: str
    bytes_max: int
    is_promised: bool
    """True if the bound is the size of the instance's storage; False for the default."""


class RunningInstance(NamedTuple):
    """An instance that runs, with its bound."""

    bound: Bound
    pids: tuple[int, ...]


class Unsure(NamedTuple):
    """The state of an instance whose measurements may have missed files."""

    rounds: int = 0
    """Uncertain measurements in a row."""
    due: float = float("-inf")
    """The time from which the instance may be stopped again."""
    last: Used = Used(0)
    """The last certain measurement."""
    restless: int = 0
    """Number of times in a row that the instance evaded being stopped."""


class Watchdog:
    """Measures the running instances: run `run` until it is cancelled."""

    def __init__(
        self,
        disk: Disk,
        running: Callable[[], Awaitable[Mapping[Subject, RunningInstance]]],
        notify: Callable[[Subject], None],
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._disk = disk
        self._running = running
        self._notify = notify
        self._clock = clock
        self._free = disk.space.free
        self._rounds = 0
        self._pressed_at = float("-inf")
        self._over: dict[Subject, Overuse] = {}
        self._unsure: dict[Subject, Unsure] = {}
        self._unseen: dict[Subject, int] = {}
        """Number of looks in a row that found files in flight which could not be inspected."""
        self._found: dict[Subject, Used] = {}
        self._took: dict[Subject, float] = {}
        """The duration of the last measurement of each instance."""
        self._measuring: dict[str, asyncio.Task[None]] = {}
        """Running measurements, by tenant."""
        self._threads = ThreadPoolExecutor(TENANTS_AT_ONCE_MAX, "rota-watchdog")
        self._frozen: list[int] = []
        self._noting = threading.Lock()
        self._stopping = threading.Event()
        self._note = disk.home / FROZEN

    def over(self, subject: Subject) -> Overuse | None:
        """Return why an instance must end, or None if it need not."""
        return self._over.get(subject)

    async def run(self) -> None:
        try:
            running = await self._running()
            await asyncio.to_thread(self._thaw, running)
            while True:
                await asyncio.sleep(MEASURE_SECONDS)
                await self.round()
        finally:
            self._stopping.set()
            for task in self._measuring.values():
                task.cancel()
            self._threads.shutdown(wait=False, cancel_futures=True)

    async def round(self) -> None:
        """Measure all running instances once."""
        running = await self._running()
        nameless: dict[Subject, int | None] = {}
        if running and (self._rounds % NAMELESS_ROUNDS == 0 or self._hurries()):
            pids = {one: each.pids for one, each in running.items()}
            unseen: set[Subject] = set()
            nameless = await asyncio.to_thread(nameless_bytes, pids, self._disk.device, unseen)
            self._unseen = {one: self._unseen.get(one, 0) + 1 for one in unseen}
        self._rounds += 1
        free = self._disk.space.free
        await self._measure_all(running, nameless)
        self._free = free
        if not any(one in running for one in self._over):
            self._press({one: (used, running[one].bound) for one, used in self._found.items() if one in running})
        known: tuple[dict[Subject, Any], ...] = (self._over, self._unsure, self._found, self._took)
        for each in known:
            for gone in [one for one in each if one not in running]:
                del each[gone]

    async def _measure_all(
        self, running: Mapping[Subject, RunningInstance], nameless: Mapping[Subject, int | None]
    ) -> None:
        """Measure all instances. Return after ROUND_SECONDS_MAX, even if tenants are still being measured."""
        tenants: dict[str, list[Subject]] = {}
        # The fastest of the last round first.
        for subject in sorted(running, key=lambda one: self._took.get(one, 0.0)):
            tenants.setdefault(subject.namespace, []).append(subject)
        for tenant, subjects in tenants.items():
            if tenant not in self._measuring:
                measuring = self._measure({one: running[one] for one in subjects}, nameless)
                self._measuring[tenant] = asyncio.create_task(measuring, name=f"disk of {tenant}")
        if not self._measuring:
            return
        done, _ = await asyncio.wait(self._measuring.values(), timeout=ROUND_SECONDS_MAX)
        self._measuring = {tenant: task for tenant, task in self._measuring.items() if task not in done}
        for task in done:
            task.result()

    async def _measure(self, these: Mapping[Subject, RunningInstance], nameless: Mapping[Subject, int | None]) -> None:
        """Measure the instances of one tenant, one after the other."""
        loop = asyncio.get_running_loop()
        for subject, watched in these.items():
            bound, began = watched.bound, time.monotonic()
            try:
                measured = await loop.run_in_executor(self._threads, self._measured, subject, watched)
                found = measured._replace(bytes=measured.bytes + _counted(nameless.get(subject, 0)))
                if self._unseen.get(subject, 0) >= UNSEEN_LOOKS_MAX:
                    raise NotMeasurable("files wait in a connection that none of its processes accepts")
            except NotMeasurable as error:
                self._name(subject, "StorageExceeded", f"what it has on the disk cannot be measured: {error}")
                continue
            except OSError as error:
                log.warning("%s: what it has on the disk cannot be measured: %s", bound.folder, error)
                continue
            finally:
                self._took[subject] = time.monotonic() - began
            self._found[subject] = found
            if found.bytes > bound.bytes_max:
                self._name(subject, "StorageExceeded", _exceeded(found, bound))

    def _press(self, found: Mapping[Subject, tuple[Used, Bound]]) -> None:
        """If the disk is short, report the instance that uses most of it, unless that is too little to help."""
        space, now = self._disk.space, self._clock()
        if self._disk.level == "ok" or now - self._pressed_at < PRESSURE_SECONDS:
            return
        if space.inodes_free < low_inodes(space.inodes, self._disk.level):
            share = {one: bound.bytes_max * space.inodes // space.total for one, (_, bound) in found.items()}
            amounts = {
                one: each.files
                for one, (each, bound) in found.items()
                if not bound.is_promised or each.files > share[one]
            }
            enough = low_inodes(space.inodes)
        else:
            amounts = {one: each.bytes for one, (each, bound) in found.items() if not bound.is_promised}
            enough = low_bytes(space.total)
        most = max(amounts, key=lambda one: amounts[one], default=None)
        if most is not None and amounts[most] >= enough and most not in self._over:
            self._pressed_at = now
            message = f"the disk of the server is short of space, and it has most of it: {_size_text(found[most][0])}"
            self._name(most, "DiskPressure", f"{message}; declare storage of the size that it needs")

    def _name(self, subject: Subject, reason: Literal["StorageExceeded", "DiskPressure"], message: str) -> None:
        if subject not in self._over:
            self._over[subject] = Overuse(reason, message)
        self._notify(subject)

    def _measured(self, subject: Subject, watched: RunningInstance) -> Used:
        """Measure an instance, and stop it meanwhile if needed. Runs in a thread."""
        began = time.monotonic()
        found = used(Path(watched.bound.folder), breathe=self._breathe)
        self._breathe(min(time.monotonic() - began, BREATH_SECONDS_MAX * SHARE))
        unsure = self._unsure.get(subject, Unsure())
        if found.is_whole:
            self._unsure[subject] = unsure._replace(rounds=0, last=found)
            return found
        unsure = unsure._replace(rounds=unsure.rounds + 1)
        if self._clock() >= unsure.due and (unsure.rounds >= UNSURE_ROUNDS or self._hurries()):
            began = self._clock()
            found, is_restless = self._measured_still(watched)
            took = self._clock() - began
            share = FROZEN_SHARE_HURRY if self._hurries() else FROZEN_SHARE
            restless = unsure.restless + 1 if is_restless else 0
            unsure = Unsure(0 if found.is_whole else unsure.rounds, began + took / share, found, restless)
            if restless >= RESTLESS_MAX:
                raise NotMeasurable(RESTLESS_WHY)
        self._unsure[subject] = unsure
        # Files that were found the last time may be hidden now.
        return found._replace(bytes=max(found.bytes, unsure.last.bytes), files=max(found.files, unsure.last.files))

    def _measured_still(self, watched: RunningInstance) -> tuple[Used, bool]:
        """Measure an instance while it is stopped. Return the result, and whether it evaded being stopped."""
        deadline = time.monotonic() + FROZEN_SECONDS_MAX

        def check(_: float) -> None:
            if time.monotonic() > deadline:
                raise NotMeasurable(f"it is moved about, and more than can be measured in {FROZEN_SECONDS_MAX:.0f} s")

        self._note_frozen(watched.pids, True)
        try:
            with frozen(watched.pids) as stopped:
                found = used(Path(watched.bound.folder), breathe=check)
                stillness = stopped.check()
                return found._replace(is_whole=stillness.is_whole), stillness.is_restless
        finally:
            self._note_frozen(watched.pids, False)

    def _note_frozen(self, pids: Sequence[int], is_frozen: bool) -> None:
        """Note stopped processes for the next server, which continues them if this server is killed."""
        with self._noting:
            self._frozen = [pid for pid in self._frozen if pid not in pids] + [*pids] * is_frozen
            if self._frozen:
                self._note.write_bytes(msgspec.json.encode(self._frozen))
            else:
                self._note.unlink(missing_ok=True)

    def _thaw(self, running: Mapping[Subject, RunningInstance]) -> None:
        """Continue processes that an earlier server had stopped when it was killed."""
        with contextlib.suppress(OSError, msgspec.MsgspecError):
            pids = msgspec.json.decode(self._note.read_bytes(), type=list[int])
            thaw([pid for watched in running.values() for pid in watched.pids if pid in pids])
            self._note.unlink()

    def _breathe(self, seconds: float) -> None:
        """Pause the measuring thread to hold its share of the processor. Raises OSError when the watchdog ends."""
        if self._stopping.is_set() or (
            not self._hurries() and self._stopping.wait(min(seconds / SHARE * len(self._measuring), BREATH_SECONDS_MAX))
        ):
            raise OSError(errno.ECANCELED, os.strerror(errno.ECANCELED))

    def _hurries(self) -> bool:
        return self._disk.level != "ok" or self._free - self._disk.space.free > HURRY_BYTES


def _counted(nameless: int | None) -> int:
    if nameless is None:
        raise NotMeasurable(f"its processes have more than {DESCRIPTORS_MAX} files open, or too many mapped")
    return nameless


def write_bound(path: Path, bound: Bound) -> None:
    path.write_bytes(msgspec.json.encode(bound))


def read_bound(path: Path) -> Bound | None:
    with contextlib.suppress(OSError, msgspec.MsgspecError):
        return msgspec.json.decode(path.read_bytes(), type=Bound)
    return None


def _exceeded(found: Used, bound: Bound) -> str:
    if bound.is_promised:
        return f"it has {_size_text(found)} in its storage, whose size is {_bytes_text(bound.bytes_max)}"
    most = f"{_size_text(found)} on the disk, and without storage it may have {_bytes_text(bound.bytes_max)}"
    return f"it has {most}; declare storage of the size that it needs"


def _size_text(found: Used) -> str:
    """Return the size as text, with the number of files if their least sizes make up most of it."""
    by_number = found.files * FILE_BYTES_MIN * 2 > found.bytes
    return f"{_bytes_text(found.bytes)} with {found.files} files" if by_number else _bytes_text(found.bytes)


def _bytes_text(count: int) -> str:
    return f"{count / MIB:.1f} MiB" if count < 1024 * MIB else f"{count / MIB / 1024:.1f} GiB"
