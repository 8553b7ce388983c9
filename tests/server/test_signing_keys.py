"""The key that signs tokens: one for a home, whoever creates it."""

from __future__ import annotations

import multiprocessing
from multiprocessing.synchronize import Barrier
from pathlib import Path

from rota.server.auth import KEY_BYTES, read_key

PROCESSES = 4
KEYS = 100


def test_processes_that_create_a_key_at_the_same_time_have_the_same_one(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    barrier, read = context.Barrier(PROCESSES), context.SimpleQueue()
    processes = [context.Process(target=_read_all, args=(tmp_path, barrier, read)) for _ in range(PROCESSES)]
    for one in processes:
        one.start()
    found = [read.get() for _ in processes]
    for one in processes:
        one.join()
    assert found == [[path.read_bytes() for path in _paths(tmp_path)]] * PROCESSES
    assert sorted(tmp_path.iterdir()) == sorted(_paths(tmp_path)), "nothing temporary is left"


def test_a_key_that_is_there_stays(tmp_path: Path) -> None:
    path = tmp_path / "key"
    first = read_key(path)
    assert len(first) == KEY_BYTES and read_key(path) == first and path.stat().st_mode & 0o777 == 0o600


def _read_all(folder: Path, barrier: Barrier, read: multiprocessing.SimpleQueue[list[bytes]]) -> None:
    keys = []
    for path in _paths(folder):
        barrier.wait(30)
        keys.append(read_key(path))
    read.put(keys)


def _paths(folder: Path) -> list[Path]:
    return [folder / f"{number}.key" for number in range(KEYS)]
