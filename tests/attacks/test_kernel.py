"""By what the kernel has only so much of for the whole machine, and by what it keeps where nobody looks."""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

from rota.runtime.interface import Order, Subject
from rota.runtime.keeper.cgroup import Cgroups, host_bounds, tenant_bounds
from rota.runtime.keeper.cgroup_v1 import Controllers
from rota.runtime.nameless import nameless_bytes
from rota.runtime.places import SALT, Places
from rota.runtime.sandbox import uid_of
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


# Not by Python's own way to map a file, which keeps it open.
MAPS = f"""
import ctypes, os, time
libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long)
file = os.open("{INSIDE}", os.O_TMPFILE | os.O_RDWR)
os.write(file, bytes({MIB}))
assert libc.mmap(None, 4096, 1, 1, file, 0) != ctypes.c_void_p(-1).value
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


def has(folder: Path, file: str) -> int:
    return int((folder / file).read_text())


def test_to_have_more_in_many_containers_than_in_one() -> None:
    """Each may have most of the host. All of a tenant, and all of all tenants, have a bound, and a share of the CPU."""
    controllers = Controllers.make(f"rota-test-{uuid.uuid4().hex}")
    held = controllers.hold("one", {"memory": 1 << 30, "pids": 100}, tenant="tenant")
    groups = Cgroups.make(f"rota-test-{uuid.uuid4().hex}")
    group = groups.group("one", "tenant") if groups is not None else None
    if group is not None:
        group.limit({"pids": 100})
    own = [(path, file) for path, file in ((held.paths.get("pids"), "pids.max"),) if path is not None]
    own += [(group.path, "pids.max")] if group is not None and (group.path / "pids.max").exists() else []
    try:
        if not own:
            pytest.skip("no group can hold a limit here")
        for path, file in own:
            assert has(path, file) == 100
            assert has(path.parent, file) == int(tenant_bounds()["pids"])
            assert has(path.parent.parent, file) == int(host_bounds()["pids"])
        assert tenant_bounds()["memory"] < host_bounds()["memory"] < os.sysconf("SC_PHYS_PAGES") * 4096
        # Without a limit of its own it is in a group all the same: its processes do not count one by one.
        if "cpu" in controllers.folders:
            assert held.share is not None and f"{held.share}/cgroup.procs" in held.procs_files
            assert held.share.parent.parent == controllers.folders["cpu"]
    finally:
        assert held.remove()
        assert group is None or group.remove()
        if groups is not None:
            groups.forget("tenant")
            assert groups.leftovers() == [] and groups.remove()
        # Nothing of the tenant is left.
        assert not any((folder / "tenant").exists() for folder in controllers.folders.values())
        controllers.remove()


@pytest.mark.skipif(os.geteuid() != 0, reason="without root all sandboxes have one user")
def test_to_choose_a_name_that_has_the_uid_of_somebody_else(tmp_path: Path) -> None:
    """The uid of a name differs from home to home, and stays. An older home keeps the uids that it has."""
    order = Order(SOMEBODY, "main", 1, ("true",), {})
    uids = [Places(tmp_path / home).uid(order) for home in ("one", "two", "one")]
    assert uids[0] == uids[2] != uids[1]
    assert (tmp_path / "one" / SALT).stat().st_mode & 0o777 == 0o600
    (tmp_path / "three" / "storage").mkdir(parents=True)
    assert Places(tmp_path / "three").uid(order) == uid_of("tenant/greedy-0")
