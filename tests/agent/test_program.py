"""The static agent as a program: small, without a loader, and copied by itself to where it is to run."""

from __future__ import annotations

import os
import shutil
import stat
import struct
import subprocess
from pathlib import Path

import pytest

from tests.agent.programs import BUILD_SECONDS_MAX, SOURCES, program

SIZE_MAX = 1_000_000
SECONDS_MAX = 20
PT_DYNAMIC, PT_INTERP, PT_GNU_STACK = 2, 3, 0x6474E551
DT_NULL, DT_NEEDED = 0, 1
EXECUTABLE = 1


def segments(content: bytes) -> dict[int, tuple[int, bytes]]:
    """Return the flags and the content of the segments of a program, by their types."""
    (start,) = struct.unpack_from("<Q", content, 32)
    size, count = struct.unpack_from("<HH", content, 54)
    found = {}
    for number in range(count):
        kind, flags, offset, _, _, length = struct.unpack_from("<IIQQQQ", content, start + number * size)
        found[kind] = flags, content[offset : offset + length]
    return found


def test_it_is_small() -> None:
    assert program("c").stat().st_size < SIZE_MAX


def test_it_needs_no_loader_and_no_library_and_its_stack_cannot_be_executed() -> None:
    found = segments(program("c").read_bytes())
    assert PT_INTERP not in found and not found[PT_GNU_STACK][0] & EXECUTABLE
    needs = [tag for tag, _ in struct.iter_unpack("<qQ", found.get(PT_DYNAMIC, (0, b""))[1])]
    assert DT_NEEDED not in needs


def test_it_runs_where_there_is_nothing_else(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give a process another root")
    (tmp_path / "agent").write_bytes(program("c").read_bytes())
    (tmp_path / "agent").chmod(0o755)
    script = "import os, sys; os.chroot(sys.argv[1]); os.execv('/agent', ['agent', '--unknown'])"
    done = subprocess.run(
        ["python3", "-c", script, str(tmp_path)], capture_output=True, text=True, timeout=SECONDS_MAX, check=False
    )
    assert done.returncode == 64 and "--connect SOCKET --runner UID" in done.stderr


def test_it_installs_itself_also_over_one_that_runs(tmp_path: Path) -> None:
    target = tmp_path / "agent"
    for installing in (program("c"), target, target):
        subprocess.run([str(installing), "--install", str(target)], check=True, timeout=SECONDS_MAX)
        assert target.read_bytes() == program("c").read_bytes()
        assert stat.S_IMODE(target.stat().st_mode) == 0o555
    assert os.listdir(tmp_path) == ["agent"]


def test_it_says_where_it_cannot_be_installed(tmp_path: Path) -> None:
    argv = [str(program("c")), "--install", str(tmp_path / "nowhere" / "agent")]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=SECONDS_MAX, check=False)
    assert done.returncode == 1 and "No such file or directory" in done.stderr


REFUSED = {
    "a word": ["agent"],
    "no runner": ["--connect", "/x"],
    "no socket": ["--runner", "1"],
    "no number": ["--connect", "/x", "--runner", "1x"],
    "a negative number": ["--connect", "/x", "--runner", "-1"],
    "a socket that is too long": ["--connect", "/" + "x" * 108, "--runner", "1"],
    "not the first process": ["--connect", "/x", "--runner", "1"],
}


@pytest.mark.parametrize("arguments", REFUSED.values(), ids=REFUSED)
def test_it_refuses_what_makes_no_sense(arguments: list[str]) -> None:
    argv = [str(program("c")), *arguments]
    assert subprocess.run(argv, stderr=subprocess.PIPE, timeout=SECONDS_MAX, check=False).returncode == 64


def test_the_names_of_its_sources_are_those_that_are_built() -> None:
    named = {
        name
        for line in (SOURCES / "Makefile").read_text().splitlines()
        if "SOURCES :=" in line
        for name in line.split()[2:]
    }
    assert named == {path.name for path in SOURCES.glob("*.c")} - {"fuzz.c"}


def test_it_compiles_without_a_warning(tmp_path: Path) -> None:
    program("c")  # Skips where nothing can be built.
    targets = ["all", "sanitized", "fuzz"]
    make = ["make", "-s", "-C", str(SOURCES), f"BUILD={tmp_path}", "WERROR=-Werror", *targets]
    done = subprocess.run(make, capture_output=True, text=True, timeout=BUILD_SECONDS_MAX, check=False)
    assert done.returncode == 0, done.stderr


def test_it_is_built_with_a_cross_compiler_where_there_is_one(tmp_path: Path) -> None:
    compiler = "aarch64-linux-gnu-gcc"
    if shutil.which(compiler) is None:
        pytest.skip(f"there is no {compiler} to build for arm64 with")
    subprocess.run(
        ["make", "-s", "-C", str(SOURCES), f"BUILD={tmp_path}", "arm64"], check=True, timeout=BUILD_SECONDS_MAX
    )
    content = (tmp_path / "agent-arm64").read_bytes()
    assert len(content) < SIZE_MAX and PT_INTERP not in segments(content)
