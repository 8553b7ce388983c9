"""Explain one object of a plan: what it needs, or why it is never ready."""

from __future__ import annotations

import json
from difflib import get_close_matches

import msgspec

from rota.cli.naming import kind_named
from rota.cli.output import Part, print_line, printable, style_of
from rota.cli.plan_text import DEPTH_MAX, place
from rota.cli.session import CommandError, bad_usage
from rota.cli.typed_commands import as_typed
from rota.engine.references import kind_of, shown
from rota.engine.why import Step, Why
from rota.manifest.plan_types import Cause, Plan
from rota.manifest.rehearsal import Rehearsal

MATCHES_MAX = 5
NEEDS_MAX = 200
"""Objects shown that one object needs, directly or not."""
NEVER = 1


def write_explanation(rehearsal: Rehearsal, plan: Plan, node: str, namespace: str, *, as_json: bool) -> int:
    """Print the chain of one object. Returns the exit code: 0 if it becomes ready."""
    known = _states(plan)
    id_ = _meant(node, namespace, known)
    why = rehearsal.explain(id_)
    ready = id_ in {one.id for one in plan.ready} or id_ in {one.id for one in plan.assumed}
    if ready:
        why = Why(_needing(rehearsal, id_), why.root, "")
    elif (cause := _cause(plan, why.root.id)) is not None:
        # The plan's advice names the lines of the manifests.
        why = msgspec.structs.replace(why, advice=cause.advice)
    if as_json:
        print_line(json.dumps(msgspec.to_builtins(why), indent=2, ensure_ascii=False))
    else:
        _write(rehearsal, why, known)
    return 0 if ready else NEVER


def _states(plan: Plan) -> dict[str, Part]:
    """Return the state in words of each object of the plan, by id."""
    known: dict[str, Part] = {one.id: (f"ready in step {one.step}", "green") for one in plan.ready}
    for cause in plan.never_ready:
        known |= {one.id: ("never ready", "red") for one in cause.held_up}
        if cause.type == "Missing":
            known[cause.id] = (cause.message.removeprefix(f"{cause.name} is "), "red")
        elif kind_of(cause.id) is not None:
            # A pool with no replicas is ready, and still holds up its tasks.
            known.setdefault(cause.id, ("never ready", "red"))
    assumed = {"Exists": "assumed to be on the server", "BecomesReady": "assumed to become ready"}
    return known | {one.id: (assumed[one.type], "cyan") for one in plan.assumed}


def _meant(node: str, namespace: str, known: dict[str, Part]) -> str:
    """Return the id that KIND/NAME or KIND/NAMESPACE/NAME names."""
    word, *rest = node.split("/")
    if not 1 <= len(rest) <= 2 or not all(rest):
        raise bad_usage(f"--explain {node}: write KIND/NAME, or KIND/NAMESPACE/NAME")
    kind = kind_named(word)
    where = (rest[0] if len(rest) == 2 else namespace) if kind.namespaced else ""
    id_ = kind.key(where, rest[-1])
    if id_ in known:
        return id_
    if len(rest) == 1:
        elsewhere = [one for one in known if one.split("/", 2)[::2] == [kind.bucket, rest[0]]]
        if len(elsewhere) == 1:
            return elsewhere[0]
    names = {shown(one): one for one in known}
    same_kind = [name for name, one in names.items() if kind_of(one) is kind]
    near = get_close_matches(shown(id_), same_kind, MATCHES_MAX, 0.5) or get_close_matches(
        shown(id_), names, MATCHES_MAX
    )
    near = near or same_kind[:MATCHES_MAX]
    hint = f"\ndid you mean {', '.join(near)}?" if near else ""
    raise CommandError(f"there is no {shown(id_)} in the plan{hint}")


def _needing(rehearsal: Rehearsal, id_: str) -> Step:
    """Return the step of an object with everything that it needs. What two objects need is explained once."""
    explained: set[str] = set()

    def step(at: str, field: str, depth: int) -> Step:
        plain = msgspec.structs.replace(
            rehearsal.explain(at).step, field=field, causes=[], explained_above=at in explained
        )
        if at in explained:
            return plain
        explained.add(at)
        edges = {edge.target: edge.path for edge in reversed(rehearsal.graph.references(at))}
        if depth >= DEPTH_MAX or len(explained) >= NEEDS_MAX:
            return msgspec.structs.replace(plain, more_causes=len(edges))
        causes = [step(target, path, depth + 1) for target, path in reversed(edges.items())]
        return msgspec.structs.replace(plain, causes=causes)

    return step(id_, "", 0)


def _cause(plan: Plan, root: str) -> Cause | None:
    """Return the cause at the end of a chain, or the cause that holds up that end."""
    for cause in plan.never_ready:
        if root == cause.id or any(one.id == root for one in cause.held_up):
            return cause
    return None


def _write(rehearsal: Rehearsal, why: Why, known: dict[str, Part]) -> None:
    _write_step(why.step, rehearsal, known, "", "")
    if why.advice:
        print_line("→ ", printable(as_typed(why.advice)))


def _write_step(step: Step, rehearsal: Rehearsal, known: dict[str, Part], lead: str, below: str) -> None:
    manifest = rehearsal.written.get(step.id)
    where = f"   {place(manifest.source, manifest.line_number)}" if manifest is not None else ""
    text, style = known.get(step.id, (step.state.lower(), ""))
    field = f"{printable(step.field)}: " if step.field else ""
    again = " (see above)" if step.explained_above else ""
    print_line((lead, "dim"), (field, "dim"), step.name, "   ", (text + again, style), (where, "dim"))
    if step.explained_above:
        return
    bar = "│  " if step.causes or step.more_causes else "   "
    for condition in step.conditions:
        text = ": ".join(part for part in (condition.reason, condition.message) if part)
        status = (condition.status, style_of(condition.status))
        print_line((below + bar, "dim"), f"{condition.type}=", status, f"  {printable(text)}")
    if step.left_out:
        print_line((f"{below}│  … {step.left_out} in between", "dim"))
    for i, cause in enumerate(step.causes):
        last = i == len(step.causes) - 1 and not step.more_causes
        _write_step(cause, rehearsal, known, below + ("└─ " if last else "├─ "), below + ("   " if last else "│  "))
    if step.more_causes:
        print_line((f"{below}└─ … and {step.more_causes} more", "dim"))
