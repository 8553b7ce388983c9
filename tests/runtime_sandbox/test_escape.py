"""Ways out of a sandbox, each of which has to fail."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from rota.runtime.sandbox import Bind, command
from tests.runtime_sandbox.conftest import Box

AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to plant what an ordinary user cannot")


def test_nothing_outside_its_storage_and_tmp_can_be_written(box: Box) -> None:
    said = box.shell(
        "for place in / /usr /usr/bin /etc /dev /run /var /proc /proc/sys/kernel /workspace /tmp /dev/shm; do"
        ' if touch "$place/probe" 2>/dev/null; then echo $place; fi; done'
    )
    assert said.split() == ["/workspace", "/tmp", "/dev/shm"]


def test_what_it_writes_to_tmp_is_not_on_the_host(box: Box) -> None:
    box.shell("echo x > /tmp/rota-escape-probe")
    assert not Path("/tmp/rota-escape-probe").exists()


def test_it_has_no_capability_and_can_gain_none(box: Box) -> None:
    status = dict(line.split(":", 1) for line in box.shell("cat /proc/self/status").splitlines())
    assert {status[name].strip() for name in ("CapInh", "CapPrm", "CapEff", "CapAmb")} == {"0" * 16}
    assert status["NoNewPrivs"].strip() == "1"
    assert status["Seccomp"].strip() == "2"
    assert "Seccomp:\t2\n" in box.shell("cat /proc/1/status")


@AS_ROOT
def test_its_uid_is_its_own_and_it_is_in_no_group(make_box: Callable[[str], Box]) -> None:
    one, two = make_box("one"), make_box("two")
    assert one.uid != two.uid
    assert one.shell("id -u; id -g; id -G").split() == [str(one.uid)] * 3
    one.shell("touch mine")
    assert (one.storage / "mine").stat().st_uid == one.uid


@pytest.mark.parametrize(
    "attempt",
    [
        "mount -t tmpfs none /tmp",
        "mount --bind /workspace /usr",
        "umount /etc/passwd",
        "unshare --user --map-root-user true",
        "unshare --mount true",
        "nsenter --target 1 --mount true",
        "chroot /workspace /bin/true",
        "mknod /workspace/disk b 8 0",
        "chown 0:0 /workspace",
        "hostname taken",
        "ip link set lo down",
    ],
)
def test_an_attempt_for_which_one_must_be_root_fails(box: Box, attempt: str) -> None:
    done = box.run(
        "/bin/sh", "-c", f"PATH=$PATH:/usr/sbin:/sbin; command -v {attempt.split()[0]} >/dev/null || exit 66; {attempt}"
    )
    if done.returncode == 66:
        pytest.skip(f"{attempt.split()[0]} is not installed")
    assert done.returncode != 0, done.stdout


def test_a_user_namespace_cannot_be_made_by_any_call(box: Box) -> None:
    script = (
        "import ctypes, os\n"
        "libc = ctypes.CDLL(None, use_errno=True)\n"
        "def tried(*call):\n"
        "    result = libc.syscall(*call)\n"
        "    if result == 0 and call[0] != UNSHARE: os._exit(0)\n"
        "    return os.strerror(ctypes.get_errno()) if result == -1 else 'made'\n"
        "machine = os.uname().machine\n"
        "UNSHARE, CLONE = (272, 56) if machine == 'x86_64' else (97, 220)\n"
        "print(tried(UNSHARE, 0x10000000), tried(CLONE, 0x10000000 | 17, 0, 0, 0, 0), tried(435, 0, 0), sep='; ')\n"
    )
    said = box.run(sys.executable, "-c", script).stdout
    assert said == "Operation not permitted; Operation not permitted; Function not implemented\n"


def test_a_process_outside_can_be_neither_signalled_nor_traced(box: Box) -> None:
    outside = subprocess.Popen(["sleep", "60"])
    try:
        said = box.shell(f"kill -9 {outside.pid}; kill -9 -1; cat /proc/{outside.pid}/environ")
        assert "No such process" in said
        assert outside.poll() is None
        script = f"import ctypes; print(ctypes.CDLL(None).ptrace(16, {outside.pid}, 0, 0))"
        assert box.run(sys.executable, "-c", script).stdout == "-1\n"
    finally:
        outside.kill()
        outside.wait()


@AS_ROOT
def test_its_own_first_process_can_be_neither_signalled_nor_traced(box: Box) -> None:
    assert "not permitted" in box.shell("kill -9 1").lower()
    assert box.run(sys.executable, "-c", "import ctypes; print(ctypes.CDLL(None).ptrace(16, 1, 0, 0))").stdout == "-1\n"


@AS_ROOT
def test_a_setuid_program_gains_nothing(box: Box) -> None:
    planted = box.storage / "id"
    planted.write_bytes(Path("/usr/bin/id").read_bytes())
    planted.chmod(0o4755)
    assert planted.stat().st_uid == 0
    assert box.shell("./id -u; su -c id </dev/null").split()[0] == str(box.uid)


@AS_ROOT
def test_a_device_in_its_storage_cannot_be_opened(box: Box) -> None:
    os.mknod(box.storage / "memory", 0o20666, os.makedev(1, 1))
    (box.storage / "memory").chmod(0o666)
    assert "Permission denied" in box.shell("head -c 1 memory")


def test_a_link_in_its_storage_leads_to_nothing_of_the_host(box: Box) -> None:
    secret = box.folder / "secret"
    secret.write_text("s3cret")
    (box.storage / "absolute").symlink_to(secret)
    (box.storage / "relative").symlink_to("../secret")
    said = box.shell("cat absolute relative; echo x > absolute; ls ../secret")
    assert "s3cret" not in said
    assert secret.read_text() == "s3cret"


def test_a_place_below_the_storage_cannot_be_bound_to(box: Box, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="must not be inside"):
        box.command("true", files={"/workspace/.config/key": b""})
    with pytest.raises(ValueError, match="must not be inside"):
        box.command("true", read_only=[Bind(tmp_path, "/workspace/data")])


@pytest.mark.parametrize("target", ["relative", "/", "/a/../etc", "/proc/self", "/dev", "/etc/passwd", "/a\0b"])
def test_a_place_that_would_make_a_hole_is_refused(box: Box, tmp_path: Path, target: str) -> None:
    with pytest.raises(ValueError):
        box.command("true", read_only=[Bind(tmp_path, target)])


def test_a_storage_that_holds_what_must_be_hidden_is_refused(box: Box) -> None:
    with pytest.raises(ValueError, match="would show"):
        box.command("true", hide=[box.storage / "home"])


def test_a_scratch_folder_that_holds_the_storage_is_refused(box: Box) -> None:
    for scratch in (box.folder, box.storage / "scratch"):
        with pytest.raises(ValueError, match="must not contain each other"):
            command(["true"], scratch=scratch, storage=Bind(box.storage, "/workspace"), uid=box.uid)
    assert box.storage.is_dir()


def test_a_library_to_preload_is_loaded_inside_only(box: Box, tmp_path: Path) -> None:
    """Loaded by bubblewrap, or by what changes the uid, it would run as root."""
    source = tmp_path / "evil.c"
    source.write_text(
        "#include <stdio.h>\n#include <unistd.h>\n"
        '__attribute__((constructor)) static void run(void) { fprintf(stderr, "as %u\\n", geteuid()); }\n'
    )
    library = box.storage / "evil.so"
    if subprocess.run(["which", "cc"], capture_output=True).returncode:
        pytest.skip("there is no C compiler")
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source], check=True)
    said = box.run("/bin/true", env={"LD_PRELOAD": f"{library}:/workspace/evil.so"}).stderr
    uid = os.geteuid() if box.uid is None else box.uid
    assert [line for line in said.splitlines() if line.startswith("as ")] == [f"as {uid}"]


def test_a_secret_of_the_environment_is_in_no_argument_list(box: Box) -> None:
    with box.started("/bin/sh", "-c", "echo up; exec sleep 60", env={"TOKEN": "s3cret-token"}) as process:
        assert process.stdout is not None and process.stdout.readline() == "up\n"
        lists = [path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline")]
        assert not [each for each in lists if b"s3cret-token" in each]
        on_disk = [path.read_bytes() for path in (box.folder / "scratch").rglob("*") if path.is_file()]
        assert not [each for each in on_disk if b"s3cret-token" in each]


def test_without_network_there_is_loopback_and_no_way_further(box: Box) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        script = (
            "import socket\n"
            "own = socket.create_server(('127.0.0.1', 0))\n"
            "socket.create_connection(own.getsockname())\n"
            "print('own loopback')\n"
            f"for address in [('127.0.0.1', {port}), ('192.0.2.1', 80)]:\n"
            "    try: socket.create_connection(address, 5)\n"
            "    except OSError as error: print(error.strerror)\n"
            "try: socket.socket(40, socket.SOCK_STREAM)\n"
            "except OSError as error: print(error.strerror)\n"
        )
        said = box.run(sys.executable, "-c", script).stdout.splitlines()
    assert said == ["own loopback", "Connection refused", "Network is unreachable", "Operation not permitted"]
    assert len(box.shell("cat /proc/net/route").splitlines()) == 1


def test_with_the_hosts_network_the_hosts_loopback_answers(box: Box) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        script = f"import socket; socket.create_connection({listener.getsockname()!r}, 5); print('reached')"
        assert box.run(sys.executable, "-c", script, network="host").stdout == "reached\n"
