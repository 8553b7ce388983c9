"""Commands that messages and pages print, and whether the real parsers take them."""

from __future__ import annotations

import ast
import functools
import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import typer

from rota.cli.app import COMMANDS, build
from rota.cli.usage import unparsed

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "rota"
QUOTED = re.compile(r"`(?:[^`\n]*\| )?(?:[A-Z_]+=\S+ )?((?:rota|kubectl) [^`]+)`")
"""A command in backquotes, perhaps with something before it that it reads from, or with its environment."""
BARE = re.compile(rf"(?<![`\w/.:-])(?:rota (?:{'|'.join(COMMANDS)})|kubectl [a-z]+)\b")
FIELD = "\x00"
"""Stands for a field of an f-string."""


class Printed(NamedTuple):
    """A text, and where it is."""

    where: str
    text: str


def messages() -> Iterator[Printed]:
    """Every text of the code that is not documentation of the code."""
    for file in sorted(SOURCE.rglob("*.py")):
        tree = ast.parse(file.read_text())
        inside: set[ast.AST] = set()
        for node in ast.walk(tree):
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
                inside.add(node.value)  # A docstring, or what says something of the assignment before it.
            if isinstance(node, ast.JoinedStr):
                inside.update(node.values)
        for node in ast.walk(tree):
            if node in inside:
                continue
            text = _text(node)
            if text:
                yield Printed(f"{file.relative_to(ROOT)}:{getattr(node, 'lineno', 0)}", text)


def _text(node: ast.AST) -> str:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(
            part.value if isinstance(part, ast.Constant) and isinstance(part.value, str) else FIELD
            for part in node.values
        )
    return ""


def commands_in(text: str) -> list[str]:
    return [" ".join(found.split()) for found in QUOTED.findall(text)]


def filled(command: str) -> str:
    """A command of an f-string with something in the place of each field: nothing where it goes on a word."""
    return re.sub(rf"(?<=[\w{FIELD}]){FIELD}", "", command).replace(FIELD, "x")


@functools.cache
def _root() -> Any:
    return typer.main.get_command(build())


def problem_of(words: list[str]) -> str:
    """Why the real parser does not take a command line; empty if it does."""
    return _kubectl_problem(words[1:]) if words[0] == "kubectl" else _rota_problem(words[1:])


def _rota_problem(words: list[str]) -> str:
    if words == ["--install-completion"]:
        return ""
    command, name, parent = _root(), "rota", None
    try:
        while True:
            context = command.make_context(name, list(words), parent=parent)
            if not hasattr(command, "commands"):
                return ""
            left = [*context._protected_args, *context.args]
            if not left:
                return "a command is missing"
            name, command, words = command.resolve_command(context, left)
            parent = context
    except typer.Exit:
        return ""  # The help was asked for.
    except Exception as error:
        return unparsed(error, "rota") if hasattr(error, "ctx") else str(error)


@functools.cache
def _kubectl_help(verbs: tuple[str, ...]) -> str:
    return subprocess.run(["kubectl", *verbs, "--help"], capture_output=True, text=True, check=False).stdout


def _kubectl_problem(words: list[str]) -> str:
    known = {"-n", "-w", "-f", "-o", "-l", "-A", "-c", "-p", "-it", "-i", "-t", "-k"}
    known |= {"--context", "--kubeconfig", "--namespace", "--help"}
    own = words[: words.index("--")] if "--" in words else words
    # Global options may come first, each with a value.
    while own and own[0].startswith("-"):
        if own[0] not in known:
            return f"kubectl has no option {own[0]}"
        own = own[2:]
    verbs = [word for word in own if not word.startswith("-")]
    depth = 3 if verbs[:2] == ["create", "secret"] else 2 if verbs[:1] in (["create"], ["config"], ["rollout"]) else 1
    usage = _kubectl_help(tuple(verbs[:depth]))
    if f"kubectl {' '.join(verbs[:depth])}" not in usage:
        return f"kubectl has no command {' '.join(verbs[:depth])}"
    for word in own:
        option = word.partition("=")[0]
        if option.startswith("--") and option not in known and option not in usage:
            return f"kubectl {' '.join(verbs[:depth])} has no option {option}"
        if option.startswith("-") and option != "-" and not option.startswith("--") and option not in known:
            return f"kubectl {' '.join(verbs[:depth])} has no option {option}"
    return ""


def words_of(command: str) -> list[str]:
    return shlex.split(command, comments=True)
