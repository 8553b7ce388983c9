"""By what an instance is given, and by what is around it."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from rota.runtime.sandbox import Bind, stage
from tests.runtime_sandbox.conftest import Box, box, make_box

__all__ = ["box", "make_box"]

SYSTEM = ["/usr", "/usr/bin", "/lib64", "/bin", "/etc", "/etc/ld.so.preload", "/etc/ssl/certs", "/proc/sys", "/dev/shm"]


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
    assert map_.split() == [str(uid), str(uid), "1"]
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
