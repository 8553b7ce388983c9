"""Random project files, of every section and with every field that the kinds have; and what people do in between.

The examples of the kinds set every field there is. An entry is one of them, varied at random wherever it is then still
an entry; so nothing is thrown away, and a new field of a kind is in here as soon as it has an example.
"""

from __future__ import annotations

import copy
import json
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from hypothesis import strategies as st

from rota import ApiError
from rota.api import KINDS
from rota.manifest import ManifestError
from rota.manifest.project import loads_project
from rota.manifest.project_format import NESTED, PROJECT_LABEL, SCHEDULES, SECTIONS, Section
from tests.corpus import Spot, replaced, spots, values, without
from tests.deploy.world import World
from tests.examples import examples

Object = dict[str, Any]

VARIATIONS_MAX = 3
SECTIONS_MAX = 3
EDITS_MAX = 4
ENTRY_BYTES_MAX = 6_000
"""Larger ones are about bounds, which are tested elsewhere."""
NAMES: tuple[list[str], ...] = (["a"], ["a"], ["a", "b"], ["b"], [])
"""Whose entries a section has: mostly the same ones, so that things meet."""
REFUSALS = (400, 404, 409, 422)
"""Codes of refusals of impossible requests."""


class Edit(NamedTuple):
    """One thing that somebody does to a live object."""

    how: str
    kind: str
    name: str
    what: Any


def text(project: Object) -> str:
    """A project as a file. JSON is YAML, and a dollar is two."""
    return json.dumps(project).replace("$", "$$")


def _timing(spec: Object) -> Object:
    return {name: value for name, value in spec.items() if name != "target"}


def _bases(section: str) -> list[Object]:
    """Entries without a name, of which those of the section are variations."""
    specs = [example["spec"] for example in examples(SECTIONS[section].kind.name)]
    if section != SCHEDULES:
        return specs
    templates = [spec["target"]["taskTemplate"] for spec in specs if "taskTemplate" in spec["target"]]
    all_of_them = [{**_timing(spec), "taskTemplate": template} for spec in specs for template in templates]
    return [entry for entry in all_of_them if _is_entry(section, entry)]


@lru_cache(maxsize=4096)
def _is_project(written: str) -> bool:
    try:
        loads_project(written, "rota.yaml", Path(), {})
    except ManifestError:
        return False
    return True


def _is_entry(section: str, entry: Object) -> bool:
    written = text({"name": "shop", section: [{"name": "a", **entry}]})
    return len(written) <= ENTRY_BYTES_MAX and _is_project(written)


BASES = {section: _bases(section) for section in SECTIONS}
NESTED_BASES = [_timing(example["spec"]) for example in examples(NESTED.kind.name)]


def _varied(draw: st.DrawFn, section: Section, entry: Object, bases: list[Object]) -> Object:
    what = draw(st.sampled_from(["drop", "borrow", "change", "empty"]))
    if what == "borrow":
        other = draw(st.sampled_from(bases))
        return {**entry, **{name: other[name] for name in [draw(st.sampled_from([*other]))]}} if other else entry
    places = list(spots({"properties": section.properties}, entry))
    if not places:
        return entry
    spot: Spot = draw(st.sampled_from(places))
    if what == "drop":
        return without(entry, spot.path)
    return replaced(entry, spot.path, None if what == "empty" else draw(st.sampled_from(list(values(spot)))))


def _base(draw: st.DrawFn, name: str, bases: list[Object]) -> Object:
    """An entry to begin with: one of the examples, varied or not."""
    entry = copy.deepcopy(draw(st.sampled_from(bases)))
    section = NESTED if bases is NESTED_BASES else SECTIONS[name]
    for _ in range(draw(st.integers(0, VARIATIONS_MAX))):
        varied = _varied(draw, section, entry, bases)
        whole = {SCHEDULES: [{"name": "a", **varied}]} if section is NESTED else varied
        entry = varied if _is_entry(name, whole) else entry
    return entry


def _named(draw: st.DrawFn, name: str, bases: list[Object]) -> list[Object]:
    names = draw(st.sampled_from(NAMES))
    return [{"name": one, **_base(draw, name, bases)} for one in names]


def _section(draw: st.DrawFn, name: str) -> list[Object]:
    entries = _named(draw, name, BASES[name])
    if name != "functions":
        return entries
    out: list[Object] = []
    for entry in entries:
        nested = _named(draw, name, NESTED_BASES) if draw(st.booleans()) else []
        # Named for its schedules only; whether it is there is for the server to say.
        is_mentioned = nested and draw(st.integers(0, 3)) == 0
        out.append({**({"name": entry["name"]} if is_mentioned else entry), **({SCHEDULES: nested} if nested else {})})
    return out


def _project(draw: st.DrawFn, sections: list[str]) -> Object:
    name = draw(st.sampled_from(["shop", "shop", "other"]))
    return {"name": name, **{section: _section(draw, section) for section in sections}}


class Scene(NamedTuple):
    """Two projects that are about the same things, and what people do to these before and after the second."""

    first: Object
    second: Object
    edits: list[Edit]
    later: list[Edit]


@st.composite
def scenes(draw: st.DrawFn) -> Scene:
    sections = draw(st.lists(st.sampled_from([*SECTIONS]), min_size=1, max_size=SECTIONS_MAX, unique=True))
    edits = [draw(_edit(sections)) for _ in range(draw(st.integers(1, EDITS_MAX)))]
    later = [draw(_edit(sections)) for _ in range(draw(st.integers(0, EDITS_MAX)))]
    return Scene(_project(draw, sections), _project(draw, sections), edits, later)


# People.


@st.composite
def _edit(draw: st.DrawFn, sections: list[str]) -> Edit:
    section = draw(st.sampled_from(sections))
    is_nested = section == "functions" and draw(st.booleans())
    kind = NESTED.kind if is_nested else SECTIONS[section].kind
    name = draw(st.sampled_from(["a.a", "a.b", "b.a"] if is_nested else ["a", "a", "b"]))
    how = draw(st.sampled_from(["set", "set", "set", "unset", "apply", "scale", "relabel", "delete"]))
    spec = copy.deepcopy(draw(st.sampled_from([example["spec"] for example in examples(kind.name)])))
    fields = draw(st.lists(st.sampled_from([*spec]), min_size=1, max_size=2, unique=True)) if spec else []
    what: Any = {name: spec[name] for name in fields}
    if how == "apply":
        what = spec
    elif how == "scale":
        what = draw(st.integers(0, 5))
    elif how == "relabel":
        what = draw(st.sampled_from([None, "other", "shop"]))
    return Edit(how, kind.name, name, what)


async def carry_out(world: World, edited: list[Edit]) -> None:
    """People change and delete things. What the server refuses they leave alone."""
    for edit in edited:
        try:
            await _carry_out(world, edit)
        except ApiError as error:
            if error.code not in REFUSALS:
                raise


async def _carry_out(world: World, edit: Edit) -> None:
    how, kind, name, what = edit
    client, api = world.client, KINDS[kind]
    if how == "delete":
        await client.delete(api, name)
    elif how == "scale":
        await client.set_scale(api, name, what)
    elif how == "relabel":
        await client.patch(api, name, {"metadata": {"labels": {PROJECT_LABEL: what}}})
    elif how == "apply":
        obj = {"apiVersion": api.api_version, "kind": kind, "metadata": {"name": name}, "spec": what}
        await client.apply(obj, manager="kubectl", force=True)
    else:
        await world.edit(kind, name, **(dict.fromkeys(what) if how == "unset" else what))
