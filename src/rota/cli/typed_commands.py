"""Rewrite commands in messages so that, typed here, they reach the same server as the running command.

A message says `rota stop`, in backquotes. After `rota --home FOLDER start` the user has to type `rota --home FOLDER
stop`, so the options that choose the server and the namespace are added where a message is printed, and nowhere else.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

from rota.cli.session import Settings

KUBECONFIG_NAME = "kubeconfig"
"""The kubeconfig of a home."""
OF_HOME = frozenset(("start", "stop", "restart", "status", "up", "doctor", "restore"))
"""Commands about the server of a home. They take no context, and no namespace."""
OF_NOTHING = frozenset(("init", "schema", "compile", "cron", "version"))
"""Commands that need no server."""
CHOOSING = frozenset(("--home", "--context", "--kubeconfig"))
NAMESPACE = frozenset(("-n", "--namespace", "-A", "--all-namespaces"))
_COMMAND = re.compile(r"`([^`]*\| )?(rota|kubectl) ([^`]+)`(?! at the hub)")
"""Excludes commands that are typed at the hub of a cell, whose options are unknown here."""
_GIVEN: ContextVar[Settings | None] = ContextVar("settings of the running command", default=None)


@contextmanager
def given(settings: Settings) -> Iterator[None]:
    """Let commands in messages be for the server and the namespace of these settings."""
    token = _GIVEN.set(settings)
    try:
        yield
    finally:
        _GIVEN.reset(token)


def as_typed(message: str) -> str:
    """Return a message with each command in it as it must be typed here."""
    settings = _GIVEN.get()
    if settings is None or "`" not in message:
        return message
    return _COMMAND.sub(lambda found: f"`{found[1] or ''}{_typed(found[2], found[3], settings)}`", message)


def _typed(program: str, rest: str, settings: Settings) -> str:
    words = rest.split()
    if CHOOSING & set(words):
        return f"{program} {rest}"
    added = [] if NAMESPACE & set(words) or not settings.namespace else ["-n", settings.namespace]
    if program == "kubectl":
        return _kubectl(rest, added, settings)
    name = words[0]
    if name in OF_NOTHING:
        added = []
    elif name in OF_HOME or "--server" in words:
        added = _options(home=settings.home)
    else:
        added = _options(home=settings.home, context=settings.context, kubeconfig=settings.kubeconfig) + added
    return " ".join([program, *map(shlex.quote, added), rest])


def _kubectl(rest: str, added: list[str], settings: Settings) -> str:
    context = settings.context or (None if settings.home else os.environ.get("ROTA_CONTEXT"))
    if context or settings.kubeconfig:
        added = _options(context=context, kubeconfig=settings.kubeconfig) + added
        return " ".join(["kubectl", *map(shlex.quote, added), rest])
    # kubectl has no option for a home.
    file = str(settings.home_path / KUBECONFIG_NAME)
    chosen = [] if _is_chosen(file) else [f"KUBECONFIG={shlex.quote(file)}"]
    return " ".join([*chosen, "kubectl", *map(shlex.quote, added), rest])


def _is_chosen(file: str) -> bool:
    """Report whether the environment makes kubectl use this kubeconfig and no other."""
    named = os.environ.get("KUBECONFIG", "")
    return bool(named) and Path(named).expanduser().resolve() == Path(file).resolve()


def _options(**values: str | None) -> list[str]:
    return [word for name, value in values.items() if value for word in (f"--{name}", value)]
