"""An editor and the loader judge the structure of a project file alike, field by field and at random."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import cycle
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import HealthCheck, given, settings

from rota.api.schema import object_schema
from rota.manifest import ManifestError
from rota.manifest.project import loads_project
from rota.manifest.project_format import SCHEDULES, SECTIONS
from rota.manifest.project_schema import project_schema
from tests.amount import amount
from tests.corpus import replaced, spots, values, without
from tests.deploy.random_projects import Scene, scenes, text
from tests.examples import examples
from tests.random_objects import objects

Object = dict[str, Any]

EXAMPLES = amount(40, 2_000)
ONE_IN = amount(23, 1)
"""One variant in so many is tried, always the same ones."""
VARIANTS_MIN = 200
STRUCTURE = re.compile(
    r"unknown (key|field)|must be of type|Unsupported value|should match|should be (less|greater|at)|may not be longer"
    r"|Too (long|many)|should have at|: required|Required value|a list of entries|an entry is a map|a name has"
)
"""Causes that a schema can find. The rest are rules over several fields, or need a clock or a folder."""
IN_CODE = re.compile(r"\.(entrypoint|path): required:|must be of type date-time")
"""Which of them is missing depends on the others. A format is a hint to editors, which need not judge it."""
CHECKED = settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))


@pytest.fixture(scope="module")
def validator() -> Any:
    return jsonschema_rs.validator_for(project_schema())


def _problems(project: Object) -> list[str]:
    try:
        loads_project(text(project), "rota.yaml", Path(), {})
    except ManifestError as error:
        return [str(problem) for problem in error.problems]
    return []


def _agree(project: Object, validator: Any) -> None:
    problems = _problems(project)
    errors = [error.message for error in validator.iter_errors(project)]
    if not problems:
        assert errors == [], project
    if any(STRUCTURE.search(problem) and not IN_CODE.search(problem) for problem in problems):
        assert errors, (project, problems)


def _project(section: str, spec: Any) -> Object | None:
    """A project with one entry that has this for its spec."""
    if not isinstance(spec, dict):
        return None
    if section != SCHEDULES:
        return {"name": "shop", section: [{"name": "x", **spec}]}
    rest = {name: value for name, value in spec.items() if name != "target"}
    target = spec.get("target")
    if isinstance(target, dict) and "taskTemplate" not in target:
        return {"name": "shop", "functions": [{"name": "f", SCHEDULES: [{"name": "x", **rest}]}]}
    template = target["taskTemplate"] if isinstance(target, dict) else target
    return {"name": "shop", SCHEDULES: [{"name": "x", **rest, "taskTemplate": template}]}


def _variants(section: str) -> Iterator[Object]:
    """Examples of a kind, each with another value at one place, or with none."""
    kind = SECTIONS[section].kind
    seen: set[tuple[str, ...]] = set()
    turns = cycle(range(ONE_IN))
    for example in examples(kind.name):
        for spot in spots(object_schema(kind), example):
            if spot.path[0] != "spec" or spot.place in seen:
                continue
            seen.add(spot.place)
            yield from (replaced(example, spot.path, value) for value in values(spot) if next(turns) == 0)
            if next(turns) == 0:
                yield without(example, spot.path)


@pytest.mark.parametrize("section", SECTIONS)
def test_every_field_is_judged_alike_just_inside_and_just_outside_of_its_bounds(section: str, validator: Any) -> None:
    projects = [project for one in _variants(section) if (project := _project(section, one.get("spec")))]
    assert len(projects) > VARIANTS_MIN // ONE_IN
    for project in projects:
        _agree(project, validator)


@pytest.mark.parametrize("section", SECTIONS)
def test_what_is_damaged_at_random_is_judged_alike(section: str, validator: Any) -> None:
    @CHECKED
    @given(objects(SECTIONS[section].kind))
    def judge(obj: Object) -> None:
        project = _project(section, obj.get("spec"))
        if project is not None:
            _agree(project, validator)

    judge()


@CHECKED
@given(scenes())
def test_an_editor_finds_nothing_wrong_with_what_can_be_deployed(validator: Any, scene: Scene) -> None:
    for project in (scene.first, scene.second):
        assert _problems(project) == []
        _agree(project, validator)
