"""`rota wait`."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Annotated, Any, NamedTuple

import typer

from rota.api import Function, Kind, Task
from rota.api.jsonpath import JSONPathError, Path, shown
from rota.cli.command import command, complain
from rota.cli.following import Key, everything, follow_named, key_in
from rota.cli.missing_names import complain_missing
from rota.cli.naming import Target, key, reference, targets
from rota.cli.options import AllNamespaces, Selector, Targets, seconds
from rota.cli.output import print_line
from rota.cli.patience import AWAY, Patience
from rota.cli.session import FAILED, CommandError, Session, bad_usage
from rota.client import ALL_NAMESPACES, Client

Object = dict[str, Any]
FORMS = "condition=TYPE[=STATUS], delete, create, jsonpath={PATH}[=VALUE]"


class Goal(NamedTuple):
    """The state that is waited for."""

    text: str
    is_reached: Callable[[Object | None], bool]
    """Report whether an object, or None for a missing one, is in that state."""
    lacking: Callable[[Object | None], str]
    """Describe the state of an object that is not in that state yet."""
    when_absent: bool = False
    """True if a missing object is not an error."""
    hopeless: Callable[[Object | None], str] = lambda _: ""
    """Return the reason why an object cannot reach the state any more; empty if there is none."""


@command
async def wait(
    session: Session,
    which: Targets = None,
    for_: Annotated[
        str,
        typer.Option(
            "--for",
            metavar="GOAL",
            help=f"Wait for this: {FORMS}; without it, until tasks are over, or functions ready.",
        ),
    ] = "",
    within: Annotated[
        str, typer.Option("--timeout", metavar="SPAN", help="Wait at most this long: 30s, 5m, 1h.")
    ] = "30s",
    selector: Selector = "",
    all_: Annotated[bool, typer.Option("--all", help="Wait for all objects of the kind in the namespace.")] = False,
    all_namespaces: AllNamespaces = False,
) -> int:
    """Wait until objects are in a state, or gone. Without --for, until tasks are over, or functions loaded.

    A function is loaded when its newest version answers. If that version cannot be loaded, the command
    fails at once.

    The exit code for tasks that are over is 0 if all have succeeded, else 1. While the server is away, the command
    waits for it; the exit code is 3 if it is not back in time.
    """
    limit_seconds = seconds(within)
    wanted = targets(which or []) if which or for_ or not selector else [Target(Task.api)]
    goal: Goal | None
    if not for_ and all(target.kind is Function.api for target in wanted):
        goal = _condition("Ready", "")._replace(hopeless=_why_not_loaded)
    else:
        goal = None if not for_ and all(target.kind is Task.api for target in wanted) else goal_of(for_)
    if not wanted[0].name and not (selector or all_):
        raise bad_usage("name the objects, or select them with --selector or --all")
    deadline = asyncio.get_running_loop().time() + limit_seconds
    async with session.client() as client:
        namespace = ALL_NAMESPACES if all_namespaces else None
        found: dict[Kind, list[Key]] = {}
        for kind, name in wanted:
            if name:
                found.setdefault(kind, []).append(key_in(client, kind, name))
            else:
                found.setdefault(kind, []).extend(await _selected(client, kind, namespace, selector, deadline))
        if not any(found.values()) and (goal is None or not goal.is_reached(None)):
            raise CommandError("nothing is selected that could be waited for")
        if goal is None:
            from rota.cli.task_wait import TaskWait

            return await TaskWait(client, found[Task.api]).until_over(deadline)
        async with asyncio.TaskGroup() as group:
            waits = [_until(client, kind, keys, goal, deadline) for kind, keys in found.items() if keys]
            tasks = [group.create_task(each) for each in waits]
    return max((task.result() for task in tasks), default=0)


async def _selected(client: Client, kind: Kind, namespace: str | None, labels: str, deadline: float) -> list[Key]:
    patience = Patience()
    try:
        async with asyncio.timeout_at(deadline):
            objects, _ = await patience.ask(lambda: everything(client, kind, namespace=namespace, labels=labels))
    except TimeoutError:
        raise CommandError(patience.doubt, AWAY) from None
    return list(map(key, objects))


async def _until(client: Client, kind: Kind, keys: list[Key], goal: Goal, deadline: float) -> int:
    """Wait for all of these objects. Returns the exit code: 0 if all came to the state."""
    latest: dict[Key, Object | None] = dict.fromkeys(keys)
    lost = False
    patience = Patience()
    following = patience.follow(lambda: follow_named(client, kind, keys))
    try:
        async with asyncio.timeout_at(deadline), contextlib.aclosing(following) as changes:
            async for at, obj in changes:
                if at not in latest:
                    continue
                was_there = latest[at] is not None
                latest[at] = obj
                name = reference(kind, at[1])
                if goal.is_reached(obj):
                    print_line(f"{name} {goal.text}")
                    del latest[at]
                elif obj is None and not goal.when_absent:
                    if was_there:
                        complain(f"{name} is gone")
                    else:
                        await complain_missing(client, kind, at[1])
                    lost = True
                    del latest[at]
                elif why := goal.hopeless(obj):
                    complain(f"{name} {why}")
                    lost = True
                    del latest[at]
                if not latest:
                    break
    except TimeoutError:
        if doubt := patience.doubt:
            complain(f"{doubt}\n{len(latest)} of {len(keys)} objects are in doubt")
            return AWAY
        for (_, name), obj in latest.items():
            complain(f"{reference(kind, name)}: {goal.text} has not come true in time; {goal.lacking(obj)}")
    return FAILED if latest or lost else 0


def goal_of(text: str) -> Goal:
    """Parse `--for`. Raises CommandError."""
    name, _, rest = text.partition("=")
    if text == "delete":
        return Goal("deleted", lambda obj: obj is None, lambda _: "it is still there", when_absent=True)
    if text == "create":
        return Goal("created", lambda obj: obj is not None, lambda _: "it is not there", when_absent=True)
    if name == "condition" and rest:
        return _condition(*rest.partition("=")[::2])
    if name == "jsonpath" and rest:
        return _path(rest)
    raise bad_usage(f"--for={text}: there are {FORMS}" if text else f"say what to wait for with --for: {FORMS}")


def _condition(type_: str, status: str) -> Goal:
    status = status or "True"

    def found(obj: Object | None) -> Object | None:
        conditions = ((obj or {}).get("status") or {}).get("conditions", [])
        return next((each for each in conditions if each.get("type", "").lower() == type_.lower()), None)

    def is_reached(obj: Object | None) -> bool:
        condition = found(obj)
        if obj is None or condition is None or condition.get("status", "").lower() != status.lower():
            return False
        observed = condition.get("observedGeneration") or obj["status"].get("observedGeneration")
        # A condition of an older generation does not count.
        return observed is None or observed >= obj["metadata"].get("generation", 0)

    def lacking(obj: Object | None) -> str:
        condition = found(obj)
        if condition is None:
            return f"it has no condition {type_}"
        why = ": ".join(condition[part] for part in ("reason", "message") if condition.get(part))
        return f"{type_} is {condition.get('status')}" + (f" ({why})" if why else "")

    return Goal(f"condition {type_}={status}", is_reached, lacking)


def _why_not_loaded(function: Object | None) -> str:
    from rota.cli.function_states import state_of

    state = state_of(function)
    if function is None or state.verdict != "NotLoaded":
        return ""
    return f"cannot be loaded: {state.why}\n`rota logs fn/{function['metadata']['name']}` tells more"


def _path(text: str) -> Goal:
    path_text, brace, rest = text.partition("}")
    if brace:
        wanted = rest.removeprefix("=") if rest else None
        path_text += brace
    else:
        path_text, equals, value = text.partition("=")
        wanted = value if equals else None
    try:
        path = Path(path_text.strip().removeprefix("{").removesuffix("}"))
    except JSONPathError as error:
        raise bad_usage(f"--for=jsonpath={text}: {error}") from None

    def is_reached(obj: Object | None) -> bool:
        values = path.find(obj)
        return wanted in map(shown, values) if wanted is not None else bool(values)

    def lacking(obj: Object | None) -> str:
        values = path.find(obj)
        return f"it is {' '.join(map(shown, values))}" if values else "there is no such field"

    return Goal(f"{path_text}={wanted}" if wanted is not None else path_text, is_reached, lacking)
