"""`rota call`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import parse_qsl, quote

import msgspec
import typer

from rota.api import Function, Task
from rota.cli.command import command
from rota.cli.gateway import backend_of
from rota.cli.naming import name_in, reference
from rota.cli.output import print_line, printable
from rota.cli.patience import AWAY_SECONDS_MAX, Patience
from rota.cli.run import stem
from rota.cli.session import Session, bad_usage
from rota.cli.task_following import Follower

Object = dict[str, Any]

DATA_BYTES_MAX = 1024 * 1024
KEPT_SECONDS = 3600
FILE = "@"
STANDARD_INPUT = "-"


@command
async def call(
    session: Session,
    function: Annotated[str, typer.Argument(metavar="FUNCTION", help="The function.", show_default=False)],
    data: Annotated[
        str,
        typer.Option(
            "--data",
            "-d",
            metavar="DATA",
            help="The event, as JSON: an object, here, in a file (@FILE), or piped in (-).",
        ),
    ] = "",
    path: Annotated[
        str | None,
        typer.Option(
            "--path",
            metavar="PATH",
            help="Make the event that of an HTTP request with this path; the data is its body.",
        ),
    ] = None,
    method: Annotated[
        str,
        typer.Option(
            "--method",
            "-X",
            metavar="METHOD",
            help="Set the method of an HTTP request; without it, POST with data, else GET.",
        ),
    ] = "",
    follow: Annotated[
        bool, typer.Option("--wait/--no-wait", help="Wait for the result, or only print the task's name.")
    ] = True,
) -> int:
    """Call a function, and print its result. Its output goes to standard error.

    The call is a task: users who may create tasks may call, even where the edge cannot be reached.
    """
    from rota.control.functions.call_tasks import label_of

    name = name_in(function, Function.api)
    given = _read(data)
    if path is None and method:
        raise bad_usage("--method goes with --path: without a path the event is the data itself")
    payload = _event(given) if path is None else _request(path, method, given)
    spec: Object = {
        "function": {"name": name, "payload": payload},
        # Not retried when a worker is lost: the caller gets that error and decides whether a retry is safe.
        "retry": {"reasons": []},
        "ttlSecondsAfterFinished": KEPT_SECONDS,
    }
    meta = {"generateName": f"{stem(name)}-", "labels": label_of(name)}
    async with session.client() as client:
        backend = backend_of(client) if follow else None
        await client.get(Function.api, name)
        body: Object = {"apiVersion": Task.api.api_version, "kind": Task.api.name, "metadata": meta, "spec": spec}
        task = await client.create(body)
        task_name = task["metadata"]["name"]
        if backend is None:
            print_line(reference(Task.api, task_name))
            return 0
        code = await _CallFollower(client, task).run()
        if code == 0:
            where = f"{quote(client.namespace, safe='')}/{quote(task_name, safe='')}"
            patience = Patience(seconds_max=AWAY_SECONDS_MAX)
            answer = await patience.ask(lambda: backend.raw("GET", f"/v1/tasks/{where}/result"))
            print_line(printable(answer.body.decode(errors="replace"), keep="\n\t"))
        return code


class _CallFollower(Follower):
    """Writes the output of the call to standard error, because standard output is for its result."""

    def _write(self, lines: list[str]) -> None:
        if lines:
            with self._status_line.cleared():
                sys.stderr.write("".join(f"{one}\n" for one in lines))
                sys.stderr.flush()


def _read(data: str) -> str:
    try:
        if data == STANDARD_INPUT:
            content = sys.stdin.buffer.read(DATA_BYTES_MAX + 1)
        elif data.startswith(FILE):
            content = Path(data[1:]).read_bytes()
        else:
            content = data.encode()
        if len(content) > DATA_BYTES_MAX:
            raise bad_usage(f"--data: at most {DATA_BYTES_MAX} bytes")
        return content.decode()
    except OSError as error:
        raise bad_usage(f"--data: {data[1:]}: {(error.strerror or str(error)).lower()}") from None
    except UnicodeError:
        raise bad_usage("--data: it is not text (UTF-8)") from None


def _event(data: str) -> Object:
    try:
        event = msgspec.json.decode(data) if data.strip() else {}
    except msgspec.DecodeError as error:
        raise bad_usage(f"--data: it is not JSON: {error}; with --path it may be anything") from None
    if not isinstance(event, dict):
        raise bad_usage('--data: the event must be a JSON object, such as {"name": "world"}')
    return event


def _request(path: str, method: str, data: str) -> Object:
    """Return the event that the edge makes of a request."""
    where, _, query = path.partition("?")
    return {
        "method": (method or ("POST" if data else "GET")).upper(),
        "path": f"/{where.lstrip('/')}",
        "query": dict(parse_qsl(query, keep_blank_values=True)),
        "headers": {},
        "body": data,
        "isBase64Encoded": False,
    }
