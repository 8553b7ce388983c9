"""`rota why`."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import datetime
from typing import Annotated, Any
from urllib.parse import quote

import typer

from rota.api.table import age, duration
from rota.cli.command import command, complain
from rota.cli.following import key_in
from rota.cli.formats import Format, write_document
from rota.cli.gateway import call
from rota.cli.naming import Target, targets
from rota.cli.options import Targets
from rota.cli.output import Columns, Part, print_line, printable, style_of
from rota.cli.session import FAILED, CommandError, Session, bad_usage
from rota.cli.typed_commands import as_typed
from rota.client import Client
from rota.client.http import HttpBackend
from rota.registry import ApiError

Object = dict[str, Any]

FORMATS = ("json", "yaml")
WATCH_SECONDS = 1.0
"""Time between two requests with `--watch`."""
VOLATILE = frozenset(
    ("time", "engine", "runs", "waitingSeconds", "againSeconds", "count", "lastSeen", "advice", "conditions")
)
"""Fields that change from one answer to the next without a change of the object."""


@command
async def why(
    session: Session,
    which: Targets = None,
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="FORMAT", help="Choose the format: json, yaml.")
    ] = "",
    watch: Annotated[
        bool,
        typer.Option("--watch", "-w", help="Explain again after each change, until the object is ready or has failed."),
    ] = False,
) -> int:
    """Tell why an object is not ready: what it waits for, down to the cause, and the one thing to do next.

    The exit code is 0 if it is ready, 1 if it is not.
    """
    wanted = targets(which or [])
    if len(wanted) != 1 or not wanted[0].name:
        raise bad_usage("name one object, such as task/build")
    if output and output not in FORMATS:
        raise bad_usage(f"-o {output}: there are {', '.join(FORMATS)}")
    async with session.client() as client:
        answer = await ask(client, wanted[0])
        _write(answer, output)
        while watch and not _is_ready(answer) and not answer["over"]:
            await asyncio.sleep(WATCH_SECONDS)
            before = answer
            try:
                answer = await ask(client, wanted[0])
            except (ApiError, OSError) as error:
                if not isinstance(error, ApiError) or error.code in (429, 503):
                    continue  # the server is away for a moment
                if error.code != 404:
                    raise
                complain(f"{before['step']['name']} is gone, and nothing refers to it")
                return FAILED
            if _lasting(answer) != _lasting(before):
                if not output:
                    print_line("")
                    print_line((f"--- {datetime.now():%H:%M:%S}", "dim"))
                _write(answer, output)
    return 0 if _is_ready(answer) else FAILED


async def ask(client: Client, target: Target) -> Object:
    """Return the answer of `/v1/why` about an object."""
    namespace, name = key_in(client, target.kind, target.name)
    path = "/".join(quote(part, safe="") for part in (target.kind.plural, namespace, name) if part)
    if not isinstance(client.backend, HttpBackend):
        raise _elsewhere(target)
    try:
        answer: Object = await call(client, "GET", f"/v1/why/{path}")
    except ApiError as error:
        if _is_unknown_path(error):
            raise _elsewhere(target) from None
        raise
    return answer


def _is_unknown_path(error: ApiError) -> bool:
    """Report whether the server has no gateway. It then does not serve the path, or forbids it."""
    if error.code == 403:
        return "cannot get path" in error.message
    return error.code == 404 and not (error.details or {}).get("name")


def _elsewhere(target: Target) -> CommandError:
    name = f"{target.kind.singular}/{target.name}"
    return CommandError(
        "the server there is not Rota's: only one that `rota start` started explains what an object waits for\n"
        f"`rota describe {name}` shows its conditions and events; for the rest, start `rota operator` with"
        f" --gateway FOLDER and ask `rota why {name} --home FOLDER`"
    )


def _is_ready(answer: Object) -> bool:
    return bool(answer["step"]["state"] == "Ready")


def _lasting(value: Any) -> Any:
    """Return an answer without the fields that change all the time."""
    if isinstance(value, dict):
        return {name: _lasting(inner) for name, inner in value.items() if name not in VOLATILE}
    return [_lasting(inner) for inner in value] if isinstance(value, list) else value


# On the screen.


def _write(answer: Object, output: str) -> None:
    if output:
        write_document(answer, Format(output))
        return
    step, now = answer["step"], datetime.fromisoformat(answer["time"]).timestamp()
    if _is_ready(answer):
        since = f" since {step['since']} ({age(step['since'], now)})" if step.get("since") else ""
        # A paused object has all that it needs, and still does not act.
        paused = ", but paused" if step.get("reason") == "Paused" else ""
        print_line((printable(step["name"]), "bold"), " is ", ("ready", "green"), since, paused)
        if not answer["advice"]:
            return
        print_line("It cannot go on all the same:")
    _write_step(step, now, "", "")
    if conditions := step.get("conditions"):
        print_line("")
        print_line(("conditions:", "bold"))
        table = Columns(["TYPE", "STATUS", "REASON", "SINCE", "MESSAGE"])
        table.write([_condition(condition, now) for condition in conditions], "  ")
    if answer["events"]:
        print_line("")
        print_line(("events:", "bold"))
        table = Columns(["LAST SEEN", "TYPE", "REASON", "OBJECT", "COUNT", "MESSAGE"])
        table.write([_event(event, now) for event in answer["events"]], "  ")
    if answer["advice"]:
        print_line("")
        print_line(("next: ", "bold"), (printable(_on_one_line(answer["advice"])), "bold"))


def _condition(condition: Object, now: float) -> list[Any]:
    since = age(condition["since"], now) if condition["since"] else ""
    return [condition["type"], condition["status"], condition["reason"], since, _on_one_line(condition["message"])]


def _event(event: Object, now: float) -> list[Any]:
    shown = [event[name] for name in ("type", "reason", "about", "count")]
    return [age(event["lastSeen"], now), *shown, _on_one_line(event["message"])]


def _on_one_line(text: str) -> str:
    return as_typed(" ".join(text.split()))


def _write_step(step: Object, now: float, lead: str, below: str) -> None:
    """Print a step and what it waits for. `lead` stands before it, `below` before the steps under it."""
    by = f" ({step['field']})" if step.get("field") else ""
    print_line((lead, "dim"), (printable(step["name"]), "bold"), (printable(by), "dim"), "  ", *_how(step, now))
    causes, more = step.get("causes", []), step.get("moreCauses", 0)
    inner = below + ("│  " if causes or more else "   ")
    for detail in _details(step).splitlines():
        print_line((inner, "dim"), printable(detail, keep="\t"))
    if pace := _pace(step):
        print_line((inner, "dim"), (pace, "dim"))
    if left_out := step.get("leftOut"):
        print_line((f"{below}┆  {left_out} steps further down:", "dim"))
    for i, cause in enumerate(causes):
        last = i == len(causes) - 1 and not more
        _write_step(cause, now, below + ("└─ " if last else "├─ "), below + ("   " if last else "│  "))
    if more:
        print_line((f"{below}└─ and {more} more", "dim"))


def _how(step: Object, now: float) -> Iterator[Part]:
    """Yield the state, and its age."""
    yield step["state"], style_of(step["state"]) or "yellow"
    if step.get("seenAbove"):
        yield ", as above", "dim"
    elif step.get("since"):
        yield f" for {age(step['since'], now)}", ""
    elif (waiting := step.get("waitingSeconds")) is not None:
        yield f" for {duration(waiting)}", ""


def _details(step: Object) -> str:
    if step.get("hidden"):
        return "you may not read it"
    if step.get("seenAbove"):
        return ""
    return as_typed(": ".join(step[part] for part in ("reason", "message") if step.get(part)))


def _pace(step: Object) -> str:
    """Describe the attempts of a controller that makes no progress."""
    if step.get("verdict") not in ("Error", "Spinning") or step.get("seenAbove"):
        return ""
    again = f", again in {duration(step['againSeconds'])}" if step.get("againSeconds") is not None else ""
    times = step.get("runs", 0)
    return f"looked at {times} time{'' if times == 1 else 's'} since it last came to rest{again}"
