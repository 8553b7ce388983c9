"""Passes the environment of a container to the engine, neither as arguments nor as the environment of its program.

Everybody on the host can see arguments. And the engine's program obeys its own variables: an `LD_PRELOAD` there is code
that runs outside the container, as the user of Rota. So the environment is passed as lines of a file in memory, which
`launch` makes.

Such a file cannot hold every value: a variable is one line, and versions of engines differ in what a quote at the
beginning means. Other values are passed as variables of the program, unless their name could mean something to it.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from rota.runtime.container import launch
from rota.runtime.interface import Refused

LINE_BYTES_MAX = 32 << 10
"""The longest line of the file: half of what an engine reads as one."""
QUOTES = ("'", '"', "`")
NAME = re.compile(r"[-._a-zA-Z][-._a-zA-Z0-9]*")
# Names that the loader, the C library, Go, the engines and their helpers, or Rota use.
PROGRAMS_OWN = re.compile(
    r"LD_|GLIBC_|MALLOC_|GCONV_PATH$|LOCPATH$|NLSPATH$|LOCALDOMAIN$|RES_OPTIONS$|HOSTALIASES$|RESOLV_|TZ(DIR)?$|LC_"
    r"|LANG(UAGE)?$|GO[A-Z0-9]*$|(PATH|HOME|USER|LOGNAME|TMP|TEMP|TMPDIR)$|XDG_|DBUS_|_?CONTAINERS?_|DOCKER|_?PODMAN"
    r"|BUILDAH|STORAGE_(DRIVER|OPTS)$|REGISTR|LIBPOD|CONMON|_?OCI_|RUNC|CRUN|_LIBCONTAINER|NETAVARK|SSL_CERT_(FILE|DIR)$"
    r"|NOTIFY_|LISTEN_|WATCHDOG_|ROTA_ENV_|.*_PROXY$",
    re.IGNORECASE,
)


class PassedEnvironment(NamedTuple):
    """The parts of an engine's command that pass the environment of a container."""

    launcher: list[str]
    """Words to put before the engine's program."""
    options: list[str]
    """Options of `run` or `exec`."""
    env: dict[str, str]
    """Variables of the command."""


def passed_environment(given: Mapping[str, str]) -> PassedEnvironment:
    """Return how to pass an environment. Raises `Refused` for a variable that cannot be passed."""
    for name, value in given.items():
        if not NAME.fullmatch(name) or "\0" in value:
            raise Refused("ConfigurationError", f"{name!r} cannot be an environment variable of a container")
    lines = [f"{name}={value}" for name, value in given.items() if _fits_a_line(value)]
    beside = {name: value for name, value in given.items() if not _fits_a_line(value)}
    for name in filter(PROGRAMS_OWN.match, beside):
        why = "it is long, begins with a quote or has a line break, and its name means something to the engine itself"
        raise Refused("ConfigurationError", f"the environment variable {name} cannot be given to a container: {why}")
    packed = {f"{launch.PACKED}{index}": line for index, line in enumerate(lines)}
    options = [*_file(lines), *(f"--env={name}" for name in beside)]
    launcher = [os.path.realpath(sys.executable), "-I", "-S", launch.__file__] if lines else []
    return PassedEnvironment(launcher, options, {**beside, **packed})


def _file(lines: Sequence[str]) -> Iterator[str]:
    if lines:
        yield f"--env-file=/dev/fd/{launch.DESCRIPTOR}"


def _fits_a_line(value: str) -> bool:
    encoded = os.fsencode(value)
    return (
        len(encoded) <= LINE_BYTES_MAX
        and not value.startswith(QUOTES)
        and not any(character in value for character in "\n\r")
        and _is_text(value)
    )


def _is_text(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True
