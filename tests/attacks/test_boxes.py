"""By what runs in the box of a worker that is kept, and by what the kernel holds for it."""

from __future__ import annotations

import asyncio
import os

from rota.runtime import sandbox
from rota.runtime.sandbox import filter as calls
from tests.runner.boxes import Bench, in_a_sandbox
from tests.runtime_sandbox.conftest import Box, box, make_box

__all__ = ["box", "make_box"]

SECONDS_MAX = 60
TAKES_OVER = """
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
first = 1
assert libc.ptrace(0x4206, first, 0, 0) == -1, "it traces the first process"
for name in ("mem", f"task/{first}/mem"):
    try:
        os.open(f"/proc/{first}/{name}", os.O_RDWR)
    except OSError:
        continue
    raise AssertionError(f"it writes to {name} of the first process")
target = (ctypes.c_void_p * 2)(0x1000, 1)
process_vm_writev = {"x86_64": 311, "aarch64": 271}[os.uname().machine]
libc.syscall(process_vm_writev, first, target, 1, target, 1, 0)
assert ctypes.get_errno() == 1, "only its address was refused"
"""


@in_a_sandbox
async def test_to_live_on_in_the_first_process_of_a_kept_box(bench: Bench) -> None:
    """Nothing ends that between two tasks, for the box ends with it."""
    outcome = await bench.run("python3", "-I", "-c", TAKES_OVER)
    assert outcome.reason == "Succeeded", bench.said()


HIDES = """
import ctypes, os, threading, time
if os.fork() == 0:
    os.setsid()
    threading.Thread(target=time.sleep, args=(1000,)).start()
    os.closerange(0, 3)
    ctypes.CDLL(None).pthread_exit(None)
while open(f"/proc/{max(int(n) for n in os.listdir('/proc') if n.isdigit())}/stat").read().split(") ")[1][0] != "Z":
    time.sleep(0.01)
"""


@in_a_sandbox
async def test_to_stay_by_a_process_whose_first_thread_has_ended(bench: Bench) -> None:
    """It looks like one that is over. Whoever is kept may have such a child."""
    reading, writing = os.pipe()
    nothing = os.open(os.devnull, os.O_RDWR)
    code = f"{HIDES}\nos.write(1, b'x')\ntime.sleep(1000)"
    argv = ["python3", "-I", "-c", code]
    try:
        kept, _ = await bench.box.run(argv, env={}, cwd="/", streams=(nothing, writing, nothing))
        assert await asyncio.to_thread(os.read, reading, 1) == b"x"
        assert not bench.box.is_clear([kept])
        await bench.box.clear([kept])
        assert bench.box.is_clear([kept])
        assert len(await _commands(bench)) == 1
    finally:
        for descriptor in (reading, writing, nothing):
            os.close(descriptor)


async def _commands(bench: Bench) -> list[int]:
    """Return the processes of the commands in a box, without its agent."""
    return [pid for pid, command in bench.below().items() if command.startswith("python3 -I -c")]


@in_a_sandbox
async def test_to_look_at_the_next_task_by_a_command_that_entered_a_kept_box(bench: Bench) -> None:
    process, uid = bench.box._process, bench.box.uid
    assert process is not None
    own = uid if os.geteuid() == 0 else None
    argv = ["/bin/sh", "-c", "echo in; exec sleep 1000"]
    entered = sandbox.enter(process.pid, argv, env={}, cwd="/", uid=own)
    spy = await asyncio.create_subprocess_exec(*entered.argv, env=entered.env, stdout=asyncio.subprocess.PIPE)
    assert spy.stdout is not None and await spy.stdout.readline() == b"in\n"
    # A task ends, and nothing else of the box does.
    outcome = await bench.sh("true")
    assert outcome.reason == "Succeeded", bench.said()
    async with asyncio.timeout(SECONDS_MAX):
        assert await spy.wait() != 0
    assert not bench.box.lost.is_set() and bench.box.is_clear()


CALLS = """
import ctypes, errno, sys
libc = ctypes.CDLL(None, use_errno=True)
for number in range(int(sys.argv[1]) + 1, int(sys.argv[1]) + 200):
    ctypes.set_errno(0)
    assert libc.syscall(number, -1, -1, -1, -1, -1, -1) == -1
    assert ctypes.get_errno() == errno.ENOSYS, f"{number}: {errno.errorcode[ctypes.get_errno()]}"
"""


def test_to_make_a_system_call_that_is_newer_than_the_filter(box: Box) -> None:
    newest = calls.NEWEST
    assert newest < 467, "open_tree_attr gives a copy of a tree of mounts"
    done = box.run("python3", "-I", "-c", CALLS, str(newest))
    assert done.returncode == 0, done.stderr


SEGMENTS = """
import ctypes, errno, os
libc = ctypes.CDLL(None, use_errno=True)
libc.shmget.argtypes = [ctypes.c_int, ctypes.c_size_t, ctypes.c_int]
def refused(result):
    return result == -1 and ctypes.get_errno() == errno.EINVAL
# What a database asks for, and no more than 256 MiB in all that the kernel lets it have of them.
assert libc.shmget(0, 56, 0o1600) >= 0 and libc.shmget(0, 64 << 10, 0o1600) >= 0
assert libc.semget(0, 20, 0o1600) >= 0
assert refused(libc.shmget(0, (64 << 10) + 1, 0o1600)), "a segment is too large"
assert refused(libc.shmget(0, 1 << 32, 0o1600)), "a segment is much too large"
assert refused(libc.semget(0, 257, 0o1600)), "there are too many semaphores"
assert int(open("/proc/sys/kernel/shmmni").read()) * (64 << 10) <= 256 << 20
number = 447
assert libc.syscall(number, 0) == -1 and ctypes.get_errno() in (errno.EPERM, errno.ENOSYS), "it has secret memory"
"""


def test_to_have_memory_in_segments_that_nobody_has_attached(box: Box) -> None:
    done = box.run("python3", "-I", "-c", SEGMENTS)
    assert done.returncode == 0, done.stderr
