"""`/v1/exec`: a command beside what an Instance runs, over a WebSocket, in Kubernetes' `v5.channel.k8s.io`.

Each message is a channel's number and then its bytes: 0 standard input, 1 standard output, 2 standard error, 3 how it
ended (a `Status`, with the exit code among its causes), 4 the size of the terminal, 255 that a channel is at its end.
"""

from __future__ import annotations

import re
from typing import NamedTuple
from urllib.parse import parse_qsl

from rota.api import Instance
from rota.client.websocket import handshake
from rota.control.holds.options import is_restarted_for, options_of
from rota.control.values import value
from rota.engine.objects import Objects, get
from rota.registry.errors import bad_request, conflict
from rota.runtime.interface import Refused, Runtime
from rota.server.audit import Audit, noting
from rota.server.auth import User
from rota.server.entering import Absent, place, present
from rota.server.execution import MESSAGE_BYTES_MAX, ExecRequest, ExecSession
from rota.server.http import Request
from rota.server.streams import Size
from rota.server.upgrade import Upgrade

PROTOCOL = "v5.channel.k8s.io"
PARAMETERS_MAX = 4096
"""Words of a command, and other parameters."""
SIZE_MAX = 65535
SIZE = re.compile(r"[0-9]{1,5}")
TERM = re.compile(r"[-+.\w]{1,63}", re.ASCII)


class ExecParameters(NamedTuple):
    """The parameters of a request."""

    container: str
    wanted: ExecRequest


def exec_(
    runtime: Runtime | Absent, objects: Objects, audit: Audit, request: Request, user: User, namespace: str, name: str
) -> Upgrade:
    """Answer with the streams of a command. The command is not recorded anywhere: it may hold secrets."""
    with noting(audit, user, "create", Instance.api.bucket, namespace, name, "exec") as note:
        session = _session(runtime, objects, request, namespace, name)
        note.code = 101
        return session


def _session(runtime: Runtime | Absent, objects: Objects, request: Request, namespace: str, name: str) -> Upgrade:
    runtime = present(runtime)
    if PROTOCOL not in handshake.offered(request.headers):
        raise bad_request(f"this is a WebSocket that speaks {PROTOCOL}")
    asked = _asked(request.query_text)
    instance, subject, container = place(objects, namespace, name, asked.container)
    run = runtime.runs(subject).get(container)
    if run is None or run.exit is not None:
        raise conflict(Instance.api, name, f"it is not running{_why(instance)}")

    def is_ending() -> bool:
        now = get(objects, Instance, name, namespace)
        return now is None or now.metadata.uid != subject.uid or now.metadata.deletion_timestamp is not None

    session = ExecSession(runtime, subject, container, asked.wanted, _env(objects, instance), is_ending)
    return Upgrade(session.serve, PROTOCOL, message_bytes_max=MESSAGE_BYTES_MAX)


def _env(objects: Objects, instance: Instance) -> dict[str, str]:
    """Return the variables of a claim whose container was not restarted for it, and so does not have them yet."""
    if is_restarted_for(instance):
        return {}
    try:
        return {one.name: value(objects, instance, one) for one in options_of(instance).env}
    except Refused as refused:
        raise conflict(Instance.api, instance.metadata.name, str(refused)) from None


def _why(instance: Instance) -> str:
    ready = instance.status.condition("Ready") if instance.status is not None else None
    return f" ({': '.join(filter(None, (ready.reason, ready.message)))})" if ready and ready.status != "True" else ""


def _asked(query: str) -> ExecParameters:
    try:
        pairs = parse_qsl(query, keep_blank_values=True, max_num_fields=PARAMETERS_MAX)
    except ValueError:
        raise bad_request(f"a command has at most {PARAMETERS_MAX} words") from None
    given = dict(pairs)
    command = tuple(value for name, value in pairs if name == "command")
    if not command or not command[0]:
        raise bad_request("say which command")
    if any("\0" in word for word in command):
        raise bad_request("a word of a command has no zero byte")
    term = given.get("term") or "xterm"
    if not TERM.fullmatch(term):
        raise bad_request(f"term: {term!r} is no kind of terminal")
    size = Size(_number(given, "width"), _number(given, "height"))
    stdin, stdout, stderr, tty = (given.get(flag) in ("true", "1") for flag in ("stdin", "stdout", "stderr", "tty"))
    wanted = ExecRequest(command, stdin, stdout, stderr, tty, term, size)
    if not (wanted.stdin or wanted.stdout or wanted.stderr):
        raise bad_request("you must specify at least 1 of stdin, stdout, stderr")
    return ExecParameters(given.get("container", ""), wanted)


def _number(given: dict[str, str], name: str) -> int:
    text = given.get(name, "0")
    if not SIZE.fullmatch(text) or int(text) > SIZE_MAX:
        raise bad_request(f"{name}: {text[:16]!r} is no size of a terminal")
    return int(text)
