"""One object of a plan: what it needs, or why it is never ready."""

from __future__ import annotations

import json
from difflib import get_close_matches

import msgspec

from rota.cli.naming import kind_named
from rota.cli.output import line, printable, style_of
from rota.cli.planned import place
from rota.cli.session import CommandError, bad_usage
from rota.engine.references import kind_of, shown
from rota.engine.why import Step, Why
from rota.manifest.plan import Rehearsal
from rota.manifest.planned import Plan

MATCHES_MAX = 5
NEEDS_MAX = 200
"""Objects that are shown of what one needs, however far away."""
NEVER = 1


def write_explanation(rehearsal: Rehearsal, plan: Plan, node: str, namespace: str, *, as_json: bool) -> int:
    """The chain of one object. Returns the exit code: whether it becomes ready."""
    known = _known(rehearsal, plan)
    id_ = _meant(node, namespace, known)
    why = rehearsal.explain(id_)
    ready = any(one.id == id_ for one in plan.ready) or id_ in rehearsal.assumed
    if ready:
        why = Why(_needing(rehearsal, id_), why.root, "")
    if as_json:
        line(json.dumps(msgspec.to_builtins(why), indent=2, ensure_ascii=False))
    else:
        _write(rehearsal, plan, why, known)
    return 0 if ready else NEVER


def _known(rehearsal: Rehearsal, plan: Plan) -> dict[str, str]:
    """Everything that there is something to say of, by id: how it is with it."""
    known = {one.id: f"ready in step {one.step}" for one in plan.ready}
    for cause in plan.never_ready:
        known |= {one.id: "never ready" for one in cause.held_up}
        if cause.type == "Missing":
            known[cause.id] = cause.message.removeprefix(cause.name).strip()
        elif kind_of(cause.id) is not None:
            known[cause.id] = "never ready"
    return known | {one.id: "assumed to be there" if one.type == "Exists" else "assumed" for one in plan.assumed}


def _meant(node: str, namespace: str, known: dict[str, str]) -> str:
    """The node that is meant by KIND/NAME, or KIND/NAMESPACE/NAME."""
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
    """An object and what it needs, down to what needs nothing. What two need is explained once."""
    seen: set[str] = set()

    def step(at: str, field: str) -> Step:
        plain = rehearsal.explain(at).step
        if at in seen or len(seen) >= NEEDS_MAX:
            return msgspec.structs.replace(plain, field=field, causes=[], seen_above=at in seen)
        seen.add(at)
        edges = {edge.target: edge.path for edge in reversed(rehearsal.graph.references(at))}
        causes = [step(target, path) for target, path in reversed(edges.items())]
        return msgspec.structs.replace(plain, field=field, causes=causes)

    return step(id_, "")


def _write(rehearsal: Rehearsal, plan: Plan, why: Why, known: dict[str, str]) -> None:
    def write(step: Step, lead: str, below: str) -> None:
        manifest = rehearsal.written.get(step.id)
        where = f"   {place(manifest.source, manifest.line)}" if manifest is not None else ""
        state = known.get(step.id, step.state.lower())
        style = "green" if state.startswith("ready") else "red" if state.startswith(("never", "n")) else "cyan"
        field = f"{printable(step.field)}: " if step.field else ""
        again = " (see above)" if step.seen_above else ""
        line((lead, "dim"), (field, "dim"), step.name, "   ", (f"{state}{again}", style), (where, "dim"))
        bar = "│  " if step.causes and not step.seen_above else "   "
        for condition in step.conditions if not step.seen_above else ():
            told = ": ".join(part for part in (condition.reason, condition.message) if part)
            line(
                (below + bar, "dim"),
                f"{condition.type}=",
                (condition.status, style_of(condition.status)),
                f"  {printable(told)}",
            )
        if step.seen_above:
            return
        for i, cause in enumerate(step.causes):
            last = i == len(step.causes) - 1 and not step.more_causes
            write(cause, below + ("└─ " if last else "├─ "), below + ("   " if last else "│  "))
        if step.more_causes:
            line((f"{below}└─ … and {step.more_causes} more", "dim"))

    write(why.step, "", "")
    told = next((c.advice for c in plan.never_ready if c.id == why.root.id), why.advice)
    if told:
        line("→ ", printable(told))
