"""The view that an instance has of its volumes."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from rota.runtime.sandbox import Bind, available, command, own, uid_of
from rota.runtime.volumes import write_all

SECONDS_MAX = 30
# Shows the file whenever it is asked to, after it tried to change it.
SCRIPT = """
while read -r _; do
    { echo mine > /etc/app/key; rm -f /etc/app/key; chmod 700 /etc/app; } 2> /dev/null
    echo "$(ls -A /etc/app) $(cat /etc/app/key 2> /dev/null)"
done
"""


def test_an_instance_reads_its_files_sees_them_change_and_changes_none(tmp_path: Path) -> None:
    if not available().ok:
        pytest.skip(available().why_not)
    storage = tmp_path / "storage"
    storage.mkdir()
    uid = uid_of("one") if os.geteuid() == 0 else None
    if uid is not None:
        own(storage, uid)

    def renew(files: dict[str, dict[str, bytes]]) -> list[Bind]:
        folders = write_all(tmp_path / "volumes", files, uid=uid)
        return [Bind(folder, place) for place, folder in folders.items()]

    shown = renew({"/etc/app": {"key": b"first"}, "/etc/zoo": {"key": b"other"}})
    made = command(
        ["/bin/sh", "-c", SCRIPT],
        scratch=tmp_path / "scratch",
        storage=Bind(storage, "/workspace"),
        read_only=shown,
        uid=uid,
    )
    started = subprocess.Popen(made.argv, env=made.env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def seen() -> str:
        assert started.stdin is not None and started.stdout is not None
        started.stdin.write("look\n")
        started.stdin.flush()
        return started.stdout.readline()

    try:
        assert seen() == "key first\n"
        renew({"/etc/app": {"key": b"second"}, "/etc/zoo": {"key": b"other"}})
        assert seen() == "key second\n"
        renew({"/etc/zoo": {"key": b"other"}})
        assert seen() == " \n"
        renew({"/etc/app": {"key": b"third"}})
        assert seen() == "key third\n"
    finally:
        started.kill()
        started.communicate(timeout=SECONDS_MAX)
