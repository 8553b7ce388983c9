"""By what the kernel has only so much of for the whole machine, and by what it keeps where nobody looks."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable

import pytest

from rota.runtime.interface import Subject
from rota.runtime.nameless import nameless_bytes
from rota.runtime.space import MIB
from tests.runtime_sandbox.conftest import INSIDE, Box, box, make_box

__all__ = ["box", "make_box"]

SOMEBODY = Subject("tenant", "greedy-0", "some-uid")

ALL_OF_INOTIFY = """
import ctypes, time
libc = ctypes.CDLL(None, use_errno=True)
while libc.inotify_init1(0) >= 0:
    pass
print(ctypes.get_errno(), flush=True)
time.sleep(1000)
"""
ONE_OF_INOTIFY = "import ctypes; print(ctypes.CDLL(None).inotify_init1(0) >= 0)"


@pytest.mark.skipif(os.geteuid() != 0, reason="without root all sandboxes have one user, whose limits they share")
def test_to_take_what_every_user_has_only_so_much_of(make_box: Callable[[str], Box]) -> None:
    """Neither another sandbox nor root on the host has less of it."""
    greedy, other = make_box("greedy"), make_box("other")
    with greedy.started("python3", "-I", "-c", ALL_OF_INOTIFY) as process:
        assert process.stdout is not None and process.stdout.readline() == "24\n"
        assert other.shell(f"python3 -I -c '{ONE_OF_INOTIFY}'") == "True\n"


CALLS = """
import ctypes, errno, os
libc = ctypes.CDLL(None, use_errno=True)
numbers = {"x86_64": (444, 206), "aarch64": (444, 0)}[os.uname().machine]
for number in numbers:
    libc.syscall(number, 0, 0, 1)
    print(errno.errorcode[ctypes.get_errno()])
"""


def test_to_keep_files_by_rules_and_to_take_all_contexts_of_the_machine(box: Box) -> None:
    """Landlock holds what its rules are about; contexts of asynchronous I/O are counted for all users together."""
    assert box.shell(f"python3 -I -c '{CALLS}'").split() == ["ENOSYS", "ENOSYS"]


MAPS = f"""
import mmap, os, time
file = os.open("{INSIDE}", os.O_TMPFILE | os.O_RDWR)
os.write(file, bytes({MIB}))
kept = mmap.mmap(file, 4096)
os.close(file)
"""
AS_A_THREAD = """
import ctypes, threading
threading.Thread(target=lambda: (time.sleep(0.1), print("there", flush=True), time.sleep(1000))).start()
ctypes.CDLL(None).pthread_exit(None)
"""
IS_RUN = f"""
import os, shutil, sys
program = "{INSIDE}/program"
shutil.copy("/bin/sleep", program)
with open(program, "ab") as file:
    file.write(bytes({MIB}))
child = os.fork()
if child == 0:
    os.execv(program, ["sleep", "1000"])
import time
while os.readlink(f"/proc/{{child}}/exe") != program:
    time.sleep(0.01)
os.unlink(program)
print("there", flush=True)
time.sleep(1000)
"""


of_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root sees how large a file is that is mapped")


@pytest.mark.parametrize(
    "script",
    [
        pytest.param(f"{MAPS}\nprint('there', flush=True)\ntime.sleep(1000)", marks=of_root, id="mapped"),
        pytest.param(MAPS + AS_A_THREAD, marks=of_root, id="mapped-by-a-thread"),
        pytest.param(IS_RUN, id="run"),
    ],
)
def test_to_keep_files_that_are_neither_named_nor_open(box: Box, script: str) -> None:
    with box.started("python3", "-I", "-c", script) as process:
        assert process.stdout is not None and process.stdout.readline() == "there\n"
        found = nameless_bytes({SOMEBODY: [process.pid]}, box.storage.stat().st_dev)[SOMEBODY]
        assert MIB <= (found or 0) < 2 * MIB
    with contextlib.suppress(FileNotFoundError):
        (box.storage / "program").unlink()
