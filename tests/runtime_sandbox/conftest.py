"""Sandboxes to try things in. Everything here is skipped, with the reason, where the host cannot make one."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rota.runtime.sandbox import Bind, Command, available, command, own, uid_of

SECONDS_MAX = 30
INSIDE = "/workspace"


class Box:
    """One instance: its storage on the host, and commands that run with it in a sandbox."""

    def __init__(self, folder: Path, key: str) -> None:
        self.folder = folder
        self.storage = folder / "storage"
        self.storage.mkdir(parents=True)
        self.uid = uid_of(key) if os.geteuid() == 0 else None
        if self.uid is not None:
            own(self.storage, self.uid)

    def command(self, *argv: str, **options: Any) -> Command:
        options = {"storage": Bind(self.storage, INSIDE), "uid": self.uid, **options}
        return command(argv, scratch=self.folder / "scratch", **options)

    def run(self, *argv: str, **options: Any) -> subprocess.CompletedProcess[str]:
        made = self.command(*argv, **options)
        return subprocess.run(
            made.argv,
            env=made.env,
            pass_fds=options.get("fds", ()),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=SECONDS_MAX,
        )

    def shell(self, script: str, **options: Any) -> str:
        """Return the output of a script, on either stream."""
        done = self.run("/bin/sh", "-c", script, **options)
        return done.stdout + done.stderr

    @contextlib.contextmanager
    def started(self, *argv: str, **options: Any) -> Iterator[subprocess.Popen[str]]:
        made = self.command(*argv, **options)
        process = subprocess.Popen(
            made.argv,
            env=made.env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        try:
            yield process
        finally:
            process.kill()
            process.communicate(timeout=SECONDS_MAX)


@pytest.fixture
def make_box(tmp_path: Path) -> Callable[[str], Box]:
    if not available().ok:
        pytest.skip(available().why_not)
    return lambda key: Box(tmp_path / "home" / key, key)


@pytest.fixture
def box(make_box: Callable[[str], Box]) -> Box:
    return make_box("one")
