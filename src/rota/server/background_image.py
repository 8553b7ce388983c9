"""Run a server from a container image: choose the image, check it, and run its container.

The container has the host's network, so the loopback inside is the host's, and of the host's files only the home, at
the same path. The image must have `rota` on its path, and is never pulled.
"""

from __future__ import annotations

import contextlib
import csv
import io
import os
import shlex
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from rota.runtime.container import Engine, available
from rota.runtime.container.client import run_program
from rota.runtime.container.dialect import DIALECTS, Facts, base
from rota.runtime.container.images import LOOK_SECONDS_MAX, check_reference
from rota.runtime.interface import Refused
from rota.runtime.keeper.protocol import hash_of
from rota.server.auth import write_private
from rota.server.background_state import IMAGE_VARIABLE

VARIABLE = "ROTA_IMAGE"
PROJECT_ENVIRONMENT = ".env.local"
ENVIRONMENT_BYTES_MAX = 64 * 1024
NOTE = "server-container.json"
"""The record of the container of this home's server."""
RUN_SECONDS_MAX = 60.0
WORDS_LINES = 20
WORDS_BYTES_MAX = "1m"
"""Bytes that the engine keeps of the output before the server opens its log."""
LOG_DRIVERS = {"podman": "k8s-file", "docker": "json-file"}


class CannotRun(OSError):  # noqa: N818 - says what is wrong
    """A server cannot be run from an image. The message says why, and what to do."""


class ImageChoice(NamedTuple):
    """An image, and the source that names it."""

    image: str
    """Empty to run the server natively."""
    source: str


class Container(NamedTuple):
    """A working engine and a present image for a server."""

    facts: Facts
    image: str


class _ContainerRecord(msgspec.Struct, frozen=True):
    name: str
    facts: Facts


def chosen(flag: str | None, environment: Mapping[str, str], folder: Path, last: str = "") -> ImageChoice:
    """Return the flag, else the environment, else the project's file, else the last start's. An empty flag means
    none."""
    if flag is not None:
        return ImageChoice(flag, "--image")
    if environment.get(VARIABLE):
        return ImageChoice(environment[VARIABLE], VARIABLE)
    file = folder / PROJECT_ENVIRONMENT
    if named := _in_file(file):
        return ImageChoice(named, str(file))
    return ImageChoice(last, "the image of the last start; --image= runs the server natively")


def _in_file(path: Path) -> str:
    try:
        with path.open("rb") as file:
            # Some editors write a byte order mark.
            text = file.read(ENVIRONMENT_BYTES_MAX).decode("utf-8-sig", "replace")
    except FileNotFoundError:
        return ""
    except OSError as error:
        raise CannotRun(f"{path}, which may name an image, cannot be read: {error.strerror}") from None
    if "\0" in text:
        raise CannotRun(f"{path}, which may name an image, cannot be read: it is not UTF-8")
    found = ""
    for line in text.splitlines():
        name, is_set, value = line.strip().removeprefix("export ").partition("=")
        if is_set and name.strip() == VARIABLE:
            # As in a shell: quotes are removed, and # begins a comment.
            try:
                found = next(iter(shlex.split(value, comments=True)), "")
            except ValueError as error:
                raise CannotRun(f"{path}: {VARIABLE} cannot be read: {error}") from None
    return found


async def checked(choice: ImageChoice, home: Path) -> Container | None:
    """Return the container for a choice, or None to run natively. Raises `CannotRun` before anything is changed."""
    if not choice.image:
        return None
    asked = f"the image {choice.image} ({choice.source})"
    try:
        check_reference(choice.image)
    except Refused as refused:
        raise CannotRun(f"{choice.source}: {refused}") from None
    engine, why_not = await available(home)
    if engine is None:
        raise CannotRun(f"no container engine for {asked}: {why_not}\nwithout an image the server runs natively")
    if not await _is_there(engine.facts, choice.image):
        raise CannotRun(
            f"no such image: {asked} is not on this host, and is never pulled for a server\n"
            f"fetch it with `{engine.name} pull {choice.image}`, or make it with `{engine.name} build`"
        )
    container = Container(engine.facts, choice.image)
    await _check_holds_rota(container)
    return container


async def _check_holds_rota(container: Container) -> None:
    """Check that the image runs `rota`, before the previous server is ended."""
    facts, image = container
    name = f"rota-image-{uuid.uuid4().hex}"
    options = ["--rm", f"--name={name}", "--network=none", "--pull=never", "--log-driver=none", *facts.run_options]
    answer = await run_program(
        [*base(facts), "run", *options, "--entrypoint=rota", image, "version"], seconds_max=RUN_SECONDS_MAX
    )
    if answer.code != 0:
        # The container may exist even so.
        await Engine(facts).remove(name)
        raise CannotRun(f"the image {image} does not run `rota`, which has to be on its path: {answer.failure}")


async def _is_there(facts: Facts, image: str) -> bool:
    dialect = DIALECTS[facts.engine]
    answer = await run_program([*base(facts), *dialect.image, image], seconds_max=LOOK_SECONDS_MAX)
    if answer.code == 0:
        return True
    if answer.code == dialect.image_absent_code and dialect.image_absent_words in answer.err.lower():
        return False
    raise CannotRun(f"{facts.engine} cannot look for the image {image}: {answer.failure}")


async def run(home: Path, container: Container, arguments: Sequence[str]) -> None:
    """Start the container of a server in the background. Raises `CannotRun`."""
    facts, image = container
    name = name_of(home)
    await remove(home)
    write_private(home / NOTE, msgspec.json.encode(_ContainerRecord(name, facts)))
    user = [f"--user={os.getuid()}:{os.getgid()}"] if facts.engine == "docker" and not facts.is_rootless else []
    argv = [
        *base(facts),
        "run",
        "--detach",
        f"--name={name}",
        f"--hostname={os.uname().nodename}",
        "--network=host",
        "--pull=never",
        f"--log-driver={LOG_DRIVERS[facts.engine]}",
        f"--log-opt=max-size={WORDS_BYTES_MAX}",
        "--security-opt=label=disable",
        *DIALECTS[facts.engine].run,
        *facts.run_options,
        *user,
        _mounted(home),
        f"--env={IMAGE_VARIABLE}={image}",
        "--entrypoint=rota",
        image,
        *arguments,
    ]
    answer = await run_program(argv, seconds_max=RUN_SECONDS_MAX)
    if answer.code != 0:
        await remove(home)
        raise CannotRun(f"{facts.engine} cannot run the image {image}: {answer.failure}")


def _mounted(home: Path) -> str:
    # CSV quoting, so that a comma in a path does not begin an option.
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow(["type=bind", f"source={home}", f"target={home}"])
    return f"--mount={line.getvalue()}"


async def is_running(home: Path) -> bool:
    """Report whether the container of a home's server runs."""
    note = _noted(home)
    if note is None:
        return False
    asked = [*base(note.facts), "container", "inspect", "--format={{.State.Running}}", note.name]
    return (await run_program(asked, seconds_max=LOOK_SECONDS_MAX)).out.strip() == "true"


async def words_of(home: Path) -> list[bytes]:
    """Return the last output of the container from the time before the server opened its log."""
    note = _noted(home)
    if note is None:
        return []
    answer = await run_program(
        [*base(note.facts), "logs", f"--tail={WORDS_LINES}", note.name], seconds_max=LOOK_SECONDS_MAX
    )
    return f"{answer.out}{answer.err}".encode().splitlines()[-WORDS_LINES:]


async def remove(home: Path) -> None:
    """End and remove the container of a home's server, if there is one."""
    note = _noted(home)
    if note is None:
        return
    await Engine(note.facts).remove(note.name)
    (home / NOTE).unlink(missing_ok=True)


def name_of(home: Path) -> str:
    """Return the name of the container of a home's server. It differs for every home."""
    return f"rota-server-{hash_of(str(home.resolve()))}"


def _noted(home: Path) -> _ContainerRecord | None:
    with contextlib.suppress(OSError, msgspec.MsgspecError):
        return msgspec.json.decode((home / NOTE).read_bytes(), type=_ContainerRecord)
    return None
