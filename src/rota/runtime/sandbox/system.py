"""The parts of the host's system that a sandbox sees read-only, its own /etc, and its environment."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import rota
from rota.runtime.sandbox import stage

SYSTEM = ("/usr", "/nix/store")
MERGED = ("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
# Certificates, but never the keys beside them; files of the loader and of Debian's alternatives; names of services.
ETC = (
    "/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/alternatives", "/etc/localtime", "/etc/timezone",
    "/etc/os-release", "/etc/mime.types", "/etc/protocols", "/etc/services", "/etc/ssl/certs", "/etc/ssl/openssl.cnf",
    "/etc/ca-certificates", "/etc/pki/ca-trust", "/etc/pki/tls/certs", "/etc/pki/tls/cert.pem",
)  # fmt: skip
OWN_ETC = {
    *(path.split("/")[2] for path in ETC), "passwd", "group", "hosts", "hostname", "nsswitch.conf", "resolv.conf",
    "shadow", "gshadow", "pam.d", "security", "sudoers", "sudoers.d", "profile", "profile.d", "environment",
}  # fmt: skip
PATH = "/usr/local/bin:/usr/bin:/bin"
USER = "worker"
LINKS_MAX = 40
"""The most links that are followed, as in the kernel."""
PACKAGES = {"bwrap": "bubblewrap"}


def options() -> Iterator[str]:
    """Yield bubblewrap's options for the folders of the system."""
    for folder in filter(os.path.isdir, SYSTEM):
        yield from ("--ro-bind", folder, folder)
    for folder in MERGED:
        if os.path.islink(folder):
            yield from ("--symlink", os.readlink(folder), folder)
        elif os.path.isdir(folder):
            yield from ("--ro-bind", folder, folder)
    for path in filter(os.path.exists, ETC):
        yield from ("--ro-bind", os.path.realpath(path), path)
    yield from (
        "--perms",
        "0755",
        "--dir",
        "/run",
        "--perms",
        "0755",
        "--dir",
        "/var",
        "--symlink",
        "../tmp",
        "/var/tmp",
    )


def python_folders() -> list[Path]:
    """Return the folders of Rota, its packages and its Python, except those inside the system's folders."""
    candidates = {Path(sys.prefix), Path(sys.base_prefix), Path(rota.__file__).parent}
    candidates |= {Path(sys.executable).resolve().parent.parent, *(path.resolve() for path in candidates)}
    shown = [Path(folder) for folder in SYSTEM]
    # Outer folders first, so that what lies in them is left out.
    for folder in sorted(candidates, key=lambda path: len(path.parts)):
        if not any(folder.is_relative_to(other) for other in shown):
            shown.append(folder)
    return [folder for folder in shown if str(folder) not in SYSTEM]


def python_links() -> list[Path]:
    """Return the symbolic links that lead to the running Python, except those in shown folders.

    The Python of a virtual environment may link into a folder of programs that must not be shown as a whole.
    """
    shown = [*map(Path, (*SYSTEM, *MERGED)), *python_folders()]
    names = [Path(sys.executable)]
    while names[-1].is_symlink() and len(names) < LINKS_MAX:
        names.append(Path(os.path.normpath(names[-1].parent / names[-1].readlink())))
    return [name for name in names if not any(name.is_relative_to(folder) for folder in shown)]


def staged(
    argv: Sequence[str], uid: int, fds: Sequence[int] = (), *, filter_: int | None = None, proxy: str = ""
) -> list[str]:
    """Return the command that runs the stage inside, which executes `argv` as `uid` with the packed environment.

    `filter_`: the descriptor of the filter of system calls; None if it is installed already. `proxy`: DESCRIPTOR:PORT
    of the sandbox's proxy; empty if there is none, or if it has its socket already.
    """
    put_on, kept = "" if filter_ is None else str(filter_), ",".join(map(str, fds))
    return [os.path.realpath(sys.executable), "-I", "-S", stage.__file__, str(uid), put_on, kept, proxy, *argv]


def program(name: str) -> str:
    found = shutil.which(name, path=f"{PATH}:/usr/sbin:/sbin")
    if found is None:
        raise FileNotFoundError(f"{name} is not installed; install the package {PACKAGES[name]}")
    return found


def etc(uid: int, home: str, hostname: str, *, networked: bool) -> Mapping[str, str]:
    """Return the files of the sandbox's own /etc. The instance's user is the only one of the host's that they name."""
    files = {
        "passwd": f"root:x:0:0:root:/:/bin/false\n{USER}:x:{uid}:{uid}:{USER}:{home}:/bin/sh\n"
        "nobody:x:65534:65534:nobody:/:/bin/false\n",
        "group": f"root:x:0:\n{USER}:x:{uid}:\nnogroup:x:65534:\n",
        "hosts": f"127.0.0.1 localhost {hostname}\n::1 localhost ip6-localhost ip6-loopback\n",
        "hostname": f"{hostname}\n",
        "nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
    }
    if networked:
        files["hosts"] += _read("/etc/hosts")
        files["resolv.conf"] = _read("/etc/resolv.conf")
    return files


def is_own_etc(name: str) -> bool:
    """Report whether the loader, the C library or a program of the system reads a file of this name in /etc."""
    return name in OWN_ETC or name.startswith("ld.so")


def packed_environment(home: str, given: Mapping[str, str]) -> dict[str, str]:
    """Return a complete environment, packed for the stage. It inherits nothing; `given` overrides defaults."""
    complete = {
        "PATH": PATH,
        "HOME": home,
        "USER": USER,
        "LOGNAME": USER,
        "SHELL": "/bin/sh",
        "LANG": "C.UTF-8",
        "TMPDIR": "/tmp",
        **given,
    }
    for name, value in complete.items():
        if not name or "=" in name or "\0" in name + value:
            raise ValueError(f"{name!r} cannot be an environment variable")
    pairs = enumerate(complete.items())
    packed = {f"{stage.PACKED.decode()}{index}": f"{name}={value}" for index, (name, value) in pairs}
    return {"PATH": PATH, **packed}


def unpacked(env: Mapping[str, str]) -> dict[str, str]:
    """Return the environment that the stage unpacks from a packed one."""
    packed = stage.PACKED.decode()
    return dict(value.partition("=")[::2] for name, value in env.items() if name.startswith(packed))


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
