"""By what an instance is given, and by what is around it."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from rota.runtime.sandbox import Bind, enter, stage
from tests.runtime_sandbox.conftest import SECONDS_MAX, Box, box, make_box

__all__ = ["box", "make_box"]

SYSTEM = ["/usr", "/usr/bin", "/lib64", "/bin", "/etc", "/etc/ld.so.preload", "/etc/ssl/certs", "/proc/sys", "/dev/shm"]


@pytest.mark.parametrize("place", ["/var/tmp", "/var/tmp/x", f"/{'a' * 256}", "/b" * 3000])
def test_to_crash_a_sandbox_by_where_its_storage_is(box: Box, place: str) -> None:
    """Whatever is taken can be started."""
    with pytest.raises(ValueError, match=r"a link to /tmp|too long"):
        box.command("true", storage=Bind(box.storage, place))
    for folder in ("/run", "/var", "/data/"):
        with pytest.raises(ValueError, match="is a folder"):
            box.command("true", files={folder: b""})


@pytest.mark.parametrize("place", [*SYSTEM, "//usr", "/./usr", sys.prefix, os.path.dirname(sys.prefix)])
def test_to_replace_a_program_that_sets_the_sandbox_up(box: Box, place: str) -> None:
    with pytest.raises(ValueError, match=r"system's own|absolute path"):
        box.command("true", storage=Bind(box.storage, place))
    with pytest.raises(ValueError, match=r"system's own|absolute path|inside"):
        box.command("true", read_only=[Bind(box.folder, place)])


def test_to_be_root_of_anything(box: Box) -> None:
    uid = box.uid if box.uid is not None else os.geteuid()
    said = box.shell("id -u; cat /proc/self/uid_map; cat /proc/self/status")
    first, map_, *status = said.splitlines()
    assert first == str(uid)
    mapped, outside, count = map_.split()
    assert (mapped, count) == (str(uid), "1")
    # Under a server that is not root, the namespace above is bubblewrap's own: whoever is 0 there is that user.
    assert outside == str(uid) or (box.uid is None and outside == "0")
    assert {line.split()[1] for line in status if line.startswith("Cap")} == {"0" * 16}
    for line in box.shell("cat /proc/1/status").splitlines():
        if line.startswith("Uid:"):
            # Its first process is nobody whom it could be, or itself.
            assert line.split()[1] in ("65534", str(uid))


def test_to_change_settings_of_the_machine(box: Box) -> None:
    script = """
        for one in sys/kernel/core_pattern sys/vm/drop_caches sysrq-trigger sys/net/ipv4/ip_forward
        do (echo 1 > /proc/$one) 2>/dev/null && echo "wrote $one"; done
        grep ' /proc/sys ' /proc/self/mountinfo | cut -d' ' -f6
    """
    assert box.shell(script).split(",")[0] == "ro"


def test_to_have_a_user_namespace_of_its_own_and_be_root_there(box: Box) -> None:
    assert "ermitted" in box.shell("unshare --user --map-root-user id -u")
    code = "import ctypes, os; print(ctypes.CDLL(None, use_errno=True).unshare(0x10000000), ctypes.get_errno())"
    assert box.shell(f"{os.path.realpath(sys.executable)} -c '{code}'").split()[0] == "-1"


@pytest.mark.parametrize(("uid", "why"), [(os.geteuid() + 1, "Uid"), (os.geteuid(), "")])
def test_to_run_where_the_sandbox_was_not_closed(uid: int, why: str) -> None:
    """Outside of any sandbox, the last step finds out, and runs nothing."""
    command = [sys.executable, "-I", "-S", stage.__file__, str(uid), "", "", "", "echo", "it runs"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (stage.NOT_CONFINED, "")
    assert "nothing is run in it" in done.stderr and why in done.stderr


SEIZES = """
import ctypes, os
libc = ctypes.CDLL(None)
print("ready", flush=True)
while True:
    for pid in map(int, filter(str.isdigit, os.listdir("/proc"))):
        if pid not in (1, os.getpid()) and libc.ptrace(0x4206, pid, None, None) == 0:
            status = dict(line.split(":\\t") for line in open(f"/proc/{pid}/status") if ":\\t" in line)
            print("seized", status["Seccomp"].strip(), status["NoNewPrivs"].strip(), flush=True)
            os._exit(0)
"""
SLOWLY = """
import time
from rota.runtime.sandbox import join, stage

class Slow:
    def __init__(self, libc):
        self._libc = libc
    def __getattr__(self, name):
        call = getattr(self._libc, name)
        def slow(*arguments):
            result = call(*arguments)
            if name == "capset" or arguments[0] in (stage.PR_SET_NO_NEW_PRIVS, stage.PR_SET_SECCOMP):
                time.sleep(0.1)
            return result
        return slow

fast = stage._libc
stage._libc = lambda: Slow(fast())
raise SystemExit(join.main())
"""
"""Joins a sandbox, and takes its time with each step of being confined there."""


def test_to_seize_what_enters_before_it_is_confined(box: Box) -> None:
    python = os.path.realpath(sys.executable)
    with box.started(python, "-I", "-S", "-c", SEIZES) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        entered = enter(process.pid, ["/bin/sleep", "60"], env={}, cwd="/", uid=box.uid)
        at = entered.argv.index("rota.runtime.sandbox.join")
        slowly = [*entered.argv[: at - 1], "-c", SLOWLY, *entered.argv[at + 1 :]]
        with subprocess.Popen(slowly, env=entered.env) as second:
            try:
                # What it has by then is confined as it is itself.
                assert process.stdout.readline() == "seized 2 1\n"
            finally:
                second.kill()
                second.wait(SECONDS_MAX)
