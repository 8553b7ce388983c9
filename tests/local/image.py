"""An image that holds Rota, made on the spot from what runs these tests: this Python, Rota, and what it depends on."""

from __future__ import annotations

import io
import os
import re
import shutil
import subprocess
import sys
import tarfile
import uuid
from pathlib import Path

import rota
from rota.runtime.container import Engine
from tests.local.distributions import files_of, needed
from tests.runtime_container.conftest import podman

LEFT_OUT = frozenset(
    ("test", "tests", "idlelib", "tkinter", "lib2to3", "ensurepip", "turtledemo", "site-packages", "pydoc_data")
)
APPLETS = ("sh", "cat", "echo", "env", "sleep", "true", "date")
PROGRAM_SECONDS_MAX = 30


def make_rota_image(engine: Engine) -> str:
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as tar:
        _Tree(tar).fill()
    name = f"localhost/rota-test-server-{uuid.uuid4().hex}"
    podman(engine, "import", "--quiet", "--change=ENV PATH=/usr/bin:/bin", "-", name, content=content.getvalue())
    return name


class _Tree:
    def __init__(self, tar: tarfile.TarFile) -> None:
        self._tar = tar
        self._shared: list[str] = []
        version = f"python{sys.version_info.major}.{sys.version_info.minor}"
        self._library = Path(sys.base_prefix) / "lib" / version

    def fill(self) -> None:
        python = os.path.realpath(sys.executable)
        self._add(python, python)
        self._add_folder(self._library, self._library)
        packages = _packages_of(python)
        self._add_folder(Path(rota.__file__).parent, packages / "rota")
        for distribution in needed("rota"):
            for file, name in files_of(distribution):
                self._add(str(file), f"{packages}/{name}")
        script = f"#!{python}\nimport sys\nfrom rota.cli import main\nsys.exit(main())\n"
        self._write("usr/bin/rota", script.encode(), 0o755)
        self._write("etc/passwd", b"root:x:0:0:root:/root:/bin/sh\n", 0o644)
        self._link(python, "usr/bin/python3")
        busybox = shutil.which("busybox")
        assert busybox is not None
        self._add(os.path.realpath(busybox), "/bin/busybox")
        for applet in APPLETS:
            self._link("/bin/busybox", f"bin/{applet}")
        folder = tarfile.TarInfo("tmp")
        folder.type, folder.mode = tarfile.DIRTYPE, 0o1777
        self._tar.addfile(folder)
        for library in _libraries([python, *self._shared]):
            self._add(os.path.realpath(library), library)

    def _add_folder(self, top: Path, target: Path) -> None:
        for folder, names, files in os.walk(top):
            names[:] = [name for name in names if name not in LEFT_OUT and not name.startswith("config-")]
            for name in files:
                path = Path(folder, name)
                self._add(str(path), str(target / path.relative_to(top)))

    def _add(self, path: str, target: str) -> None:
        if ".so" in Path(path).suffixes:
            self._shared.append(path)
        # A file that another process writes anew meanwhile is not to be added while its size changes.
        self._tar.addfile(*_entry(path, target))

    def _write(self, target: str, content: bytes, mode: int) -> None:
        info = tarfile.TarInfo(target)
        info.size, info.mode = len(content), mode
        self._tar.addfile(info, io.BytesIO(content))

    def _link(self, to: str, target: str) -> None:
        info = tarfile.TarInfo(target)
        info.type, info.linkname = tarfile.SYMTYPE, to
        self._tar.addfile(info)


def _entry(path: str, target: str) -> tuple[tarfile.TarInfo, io.BytesIO]:
    content = Path(path).read_bytes()
    info = tarfile.TarInfo(target.lstrip("/"))
    status = os.stat(path)
    # Times are kept: what was compiled before is good only for a file of the same time.
    # So are rights, but anybody in the image may read what is in it, whatever the umask was here.
    info.size, info.mode, info.mtime = len(content), status.st_mode & 0o777 | 0o444, int(status.st_mtime)
    if info.mode & 0o100:
        info.mode |= 0o111
    return info, io.BytesIO(content)


def _packages_of(python: str) -> Path:
    """Return the folder in which a Python looks for packages; distributions have names of their own for it."""
    argv = [python, "-I", "-c", "import site; print(site.getsitepackages()[0])"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=PROGRAM_SECONDS_MAX, check=True)
    return Path(done.stdout.strip())


def _libraries(files: list[str]) -> list[str]:
    """Return the loader, and the libraries that it finds for programs and libraries."""
    done = subprocess.run(["ldd", *files], capture_output=True, text=True, timeout=PROGRAM_SECONDS_MAX, check=False)
    return sorted(set(re.findall(r"(?:=> |^\t)(/\S+) \(0x", done.stdout, re.MULTILINE)))
