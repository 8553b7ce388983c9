"""Print a plan as text: what becomes ready, what never does and why, what was assumed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rota.cli.output import Part, print_line, printable
from rota.engine.references import shown
from rota.manifest.plan_types import Assumed, Cause, HeldUp, Plan, Ready

NAMES_MAX = 4
"""Objects that are named on one line."""
CHILDREN_MAX = 8
"""Objects that are shown below their owner."""
DEPTH_MAX = 12
"""Depth to which a chain is drawn. The rest is counted."""
HELD_UP_MAX = 60
"""Objects that are shown below one cause. The rest is counted."""
NAME_WIDTH_MAX = 48
Row = tuple[int, str, Ready | int]
"""The step, or 0 below another object; the tree lines before the name; the object, or the number of those left out."""
DETAIL, WORTH, WRONG, TITLE = "dim", "cyan", "red", "bold"


def write_plan(plan: Plan) -> None:
    """Print the plan without its summary."""
    if plan.ready:
        print_line(("Ready, in this order", TITLE))
        _write_ready(plan.ready)
    if plan.never_ready:
        _next(bool(plan.ready))
        print_line(("Never ready, and why", TITLE))
        for i, cause in enumerate(plan.never_ready):
            _next(i > 0)
            _write_cause(cause)
    if plan.not_honoured:
        _next(bool(plan.ready or plan.never_ready))
        print_line(("Not honoured here", TITLE))
        for one in plan.not_honoured:
            print_line("  ", one.name, (f"   {place(one.source, one.line_number)}", DETAIL))
            for text in one.message.split("; "):
                print_line("    ", printable(text))
    if plan.assumed:
        _next(bool(plan.ready or plan.never_ready or plan.not_honoured))
        print_line(("Assumed", TITLE))
        _write_assumed(plan.assumed)


def write_summary(plan: Plan) -> None:
    counts = plan.summary
    made = f" ({counts.made} made by Rota)" if counts.made else ""
    ready = (f"{counts.ready} ready", "green" if counts.ready else "")
    parts: list[Part | str] = [f"{_counted(counts.objects, 'object')}{made}: ", ready]
    if counts.never_ready or counts.causes:
        causes = _counted(counts.causes, "cause")
        parts += [", ", (f"{counts.never_ready} never ready", WRONG), f" ({causes})"]
    if counts.assumed:
        parts.append(f", {counts.assumed} assumed")
    print_line(*parts)


def place(source: str, number: int) -> str:
    """Return a position as FILE:LINE; empty if there is no file."""
    return printable(f"{source}:{number}") if source else ""


def _next(apart: bool) -> None:
    if apart:
        print_line("")


def _counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def _names(ids: Sequence[str]) -> str:
    more = f" and {len(ids) - NAMES_MAX:,} more" if len(ids) > NAMES_MAX else ""
    return ", ".join(map(shown, ids[:NAMES_MAX])) + more


# Objects that become ready.


def _write_ready(ready: Sequence[Ready]) -> None:
    shown_ids = {one.id for one in ready}
    below: dict[str, list[Ready]] = {}
    for one in ready:
        if one.owner in shown_ids:
            below.setdefault(one.owner, []).append(one)
    rows: list[Row] = []
    for one in ready:
        if one.owner not in shown_ids:
            rows.append((one.step, "", one))
            _add_children(one, below, "", rows)
    digits = len(str(max(one.step for one in ready)))
    width = _width(len(lead) + len(what.name) for _, lead, what in rows if isinstance(what, Ready))
    before = 0
    for step, lead, what in rows:
        number = f"{step:>{digits}}" if step not in (before, 0) else " " * digits
        before = step or before
        if isinstance(what, int):
            print_line(f"  {' ' * digits}  {lead}", (f"… and {what:,} more", DETAIL))
            continue
        note = _note(what)
        name = f"{lead}{what.name}"
        print_line("  ", (number, DETAIL), f"  {name}", *([" " * (width - len(name) + 3), *note] if note else []))


def _add_children(one: Ready, below: dict[str, list[Ready]], lead: str, rows: list[Row]) -> None:
    children = below.get(one.id, [])
    more = len(children) - CHILDREN_MAX
    drawn = children[:CHILDREN_MAX] if more > 0 else children
    for i, child in enumerate(drawn):
        last = i == len(drawn) - 1 and more <= 0
        rows.append((0, lead + ("└─ " if last else "├─ "), child))
        _add_children(child, below, lead + ("   " if last else "│  "), rows)
    if more > 0:
        rows.append((0, f"{lead}└─ ", more))


def _note(one: Ready) -> list[Part | str]:
    notes: list[Part] = []
    if one.made:
        notes.append(("made by Rota", WORTH))
    if one.skipped:
        notes.append(("nothing to do", WORTH))
    if one.needs:
        notes.append((f"after {_names(one.needs)}", DETAIL))
    parts: list[Part | str] = []
    for note in notes:
        parts += [", ", note] if parts else [note]
    return parts


def _width(lengths: Iterable[int]) -> int:
    return min(NAME_WIDTH_MAX, max(lengths, default=0))


# Objects that never become ready.


def _write_cause(cause: Cause) -> None:
    where = f"   {place(cause.source, cause.line_number)}" if cause.source and not cause.circle else ""
    print_line("  ", (printable(_title(cause)), WRONG), (where, DETAIL))
    drawn = [one for one in cause.held_up if one.depth < DEPTH_MAX][:HELD_UP_MAX]
    leads = _leads(drawn)
    widths = [
        _width(len(lead) + len(one.name) for lead, one in zip(leads, drawn, strict=True)),
        _width(len(one.field) for one in drawn),
    ]
    for lead, one in zip(leads, drawn, strict=True):
        parts: list[Part | str] = ["  ", (lead, DETAIL), one.name]
        where = place(one.source, one.line_number)
        if one.field or where:
            parts += [" " * (widths[0] - len(lead + one.name) + 3), (one.field, DETAIL)]
        if where:
            parts += [" " * (widths[1] - len(one.field) + 3), (where, DETAIL)]
        print_line(*parts, f"   also waits for {_names(one.also)}" if one.also else "")
    if len(drawn) < len(cause.held_up):
        print_line("  ", (f"… and {len(cause.held_up) - len(drawn):,} more behind these", DETAIL))
    if cause.elsewhere and not drawn:
        print_line("  ", ("└─ ", DETAIL), _names(cause.elsewhere), ("   below another cause", DETAIL))
    if cause.advice:
        print_line("  → ", printable(cause.advice))


def _title(cause: Cause) -> str:
    if len(cause.circle) > DEPTH_MAX:
        some = " → ".join(cause.circle[:NAMES_MAX])
        return f"{some} → … → {cause.circle[-1]} ({len(cause.circle) - 1:,} in all) wait for each other"
    return " ".join(cause.message.split())


def _leads(held_up: Sequence[HeldUp]) -> list[str]:
    """Return the tree lines before each name."""
    out: list[str] = []
    # From the last to the first, because a line goes on only if an object below has the same depth.
    goes_on: list[bool] = []
    for one in reversed(held_up):
        here = goes_on[: one.depth] + [False] * (one.depth - len(goes_on))
        last = not (len(goes_on) > one.depth and goes_on[one.depth])
        out.append("".join("│  " if on else "   " for on in here) + ("└─ " if last else "├─ "))
        goes_on = [*here, True]
    return out[::-1]


# Assumptions.


def _write_assumed(assumed: Sequence[Assumed]) -> None:
    width = _width(len(one.name) for one in assumed)
    for one in assumed:
        gap = " " * (width - len(one.name) + 3)
        text = (
            f"on the server, for {_names(one.needed_by)}"
            if one.type == "Exists"
            else "becomes ready: nothing here acts on it"
        )
        print_line("  ", one.name, gap, (text, DETAIL))
