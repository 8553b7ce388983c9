"""`rota run`."""

from __future__ import annotations

import math
import re
import sys
from typing import Annotated, Any

import typer

from rota.api import Task, WorkerPool
from rota.api.model import VALUE_LENGTH_MAX
from rota.cli.command import command
from rota.cli.following import everything
from rota.cli.gateway import backend_of
from rota.cli.missing_names import check_namespace
from rota.cli.naming import reference
from rota.cli.options import seconds
from rota.cli.output import note, print_line
from rota.cli.session import CommandError, Session, bad_usage
from rota.client import Client

Object = dict[str, Any]

STEM_LENGTH_MAX = 40
UTF8_BYTES_MAX = 4
"""Bytes of one character at most."""
PRIORITY_MAX = 1000
_NOT_IN_NAME = re.compile(r"[^a-z0-9]+")


@command
async def run(
    session: Session,
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="-- COMMAND…", help="The command to run, after two dashes.", show_default=False),
    ] = None,
    prompt: Annotated[
        str | None,
        typer.Option("--prompt", "-p", metavar="TEXT", help="Give an agent this prompt, instead of a command."),
    ] = None,
    pool: Annotated[
        str, typer.Option("--pool", metavar="NAME", help="Choose a pool; without it, the only one that has workers.")
    ] = "",
    name: Annotated[
        str, typer.Option("--name", metavar="NAME", help="Name the task; without it, after the command.")
    ] = "",
    follow: Annotated[
        bool,
        typer.Option(
            "--follow",
            "-f",
            help="Show the task's output until it is over; the exit code is then the task's,"
            " 124 if its time was up, 130 if it was cancelled, 3 if the server was away for a minute."
            " Ctrl-C cancels it; a second one leaves it.",
        ),
    ] = False,
    stdin: Annotated[bool, typer.Option("--stdin", "-i", help="Pass standard input on.")] = False,
    within: Annotated[
        str,
        typer.Option("--timeout", metavar="SPAN", help="End the task after this time: 30s, 5m, 1h; without it, never."),
    ] = "",
    priority: Annotated[
        int | None,
        typer.Option(
            "--priority",
            metavar="NUMBER",
            min=-PRIORITY_MAX,
            max=PRIORITY_MAX,
            help="Set the priority; higher goes first. Without it, 0.",
        ),
    ] = None,
    depends_on: Annotated[
        list[str] | None,
        typer.Option("--depends-on", metavar="TASK", help="Wait for the success of another task; repeatable."),
    ] = None,
    branch: Annotated[str, typer.Option("--branch", metavar="NAME", help="Lock a branch while this task runs.")] = "",
) -> int:
    """Run a command, or a prompt, as a task on a worker of a pool.

    Prints the task's name, as other commands take it.
    """
    if words and prompt is not None:
        raise bad_usage("a task runs a command or gives an agent a prompt, not both: leave out -p, or what is after --")
    if not words and prompt is None:
        raise bad_usage("say what to run: `rota run -- COMMAND`, or for an agent `rota run -p PROMPT`")
    if stdin and prompt is not None:
        raise bad_usage("--stdin goes with a command: a prompt is what its agent reads")
    spec: Object = {"command": words} if words else {"prompt": prompt}
    if within:
        spec["timeoutSeconds"] = max(1, math.ceil(seconds(within)))
    if priority is not None:
        spec["priority"] = priority
    if depends_on:
        spec["dependsOn"] = [one.removeprefix("task/").removeprefix(reference(Task.api, "")) for one in depends_on]
    if branch:
        spec["branch"] = branch
    if stdin:
        spec["stdin"] = _standard_input()
    _check_text([*(words or ()), prompt or "", branch])
    meta = {"name": name} if name else {"generateName": f"{stem(words[0] if words else prompt or '')}-"}
    async with session.client() as client:
        if follow:
            backend_of(client)
        spec["workerPoolRef"] = {"name": await _pool(client, pool)}
        body: Object = {"apiVersion": Task.api.api_version, "kind": Task.api.name, "metadata": meta, "spec": spec}
        task = await client.create(body)
        own_name = reference(Task.api, task["metadata"]["name"])
        if not follow:
            print_line(own_name)
            return 0
        from rota.cli.task_following import Follower

        note(own_name)
        return await Follower(client, task).run()


def stem(text: str) -> str:
    """Return the beginning of a task's name: the program, or the first words of a prompt."""
    last = text.rstrip("/").rpartition("/")[2] if " " not in text else text
    return _NOT_IN_NAME.sub("-", last.lower())[:STEM_LENGTH_MAX].strip("-") or "task"


def _standard_input() -> str:
    content = sys.stdin.buffer.read(VALUE_LENGTH_MAX * UTF8_BYTES_MAX + 1)
    try:
        text = content.decode()
    except UnicodeDecodeError:
        raise bad_usage("--stdin: what is on standard input is not text (UTF-8)") from None
    from rota.api.templates.expressions import literal

    # Piped input is data, even if it looks like an expression of a template.
    text = literal(text)
    if len(text) > VALUE_LENGTH_MAX:
        raise bad_usage(f"--stdin: a task reads {VALUE_LENGTH_MAX} characters at most; put more into a file")
    return text


def _check_text(texts: list[str]) -> None:
    for text in texts:
        try:
            text.encode()
        except UnicodeEncodeError:
            raise bad_usage(f"{text!r} is not text (UTF-8)") from None


async def _pool(client: Client, wanted: str) -> str:
    """Return the name of the pool to use. Raises CommandError if there is not exactly one."""
    if wanted:
        # A task would wait for ever for a pool whose name is misspelt.
        await client.get(WorkerPool.api, wanted)
        return wanted
    pools, _ = await everything(client, WorkerPool.api, namespace=None)
    names = sorted(pool["metadata"]["name"] for pool in pools if _has_workers(pool["spec"]))
    if not names:
        await check_namespace(client)
        raise CommandError(f"no pool in namespace {client.namespace} has workers: make one, or name one with --pool")
    if len(names) > 1:
        raise CommandError(f"name the pool with --pool: there are {', '.join(names)}")
    only: str = names[0]
    return only


def _has_workers(spec: Object) -> bool:
    return "worker" in spec or "worker" in spec.get("template", {})
