"""`rota schema`: what an editor accepts is what the project file may be, as far as a schema can tell."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
import yaml

from rota.cli.init import contents
from rota.manifest import ManifestError
from rota.manifest.project import loads_project
from rota.manifest.project_format import SECTIONS
from rota.manifest.project_schema import project_schema
from tests.cli.conftest import Terminal
from tests.examples import examples

FUNCTION = {"name": "f", "entrypoint": "a:b", "source": {"inline": "x"}}
DAILY = {"name": "s", "cron": "@daily"}
ENVIRONMENT = {"N": "3", "YES": "true", "CRON": "@daily"}

GOOD: list[dict[str, Any]] = [
    {},
    {"functions": None, "pools": []},
    {"functions": [FUNCTION]},
    {"functions": [{**FUNCTION, "schedules": [DAILY], "public": None}]},
    {"functions": [{"name": "f", "schedulers": [{**DAILY, "payload": {"a": [1, None]}, "enabled": False}]}]},
    {"functions": [{**FUNCTION, "timeoutSeconds": "${N}", "public": "${YES}", "regions": ["ber"]}]},
    {"functions": [{"name": "f", "schedules": [{"name": "s", "cron": "${CRON}"}]}]},
    {"functions": [{**FUNCTION, "resources": {"limits": {"cpu": 2, "memory": "1Gi"}}}]},
    {"pools": [{"name": "p", "worker": {"type": "shell", "env": [{"name": "A", "value": "${N}"}]}, "replicas": 2}]},
    {"schedules": [{**DAILY, "taskTemplate": {"command": ["a"], "workerPoolRef": {"name": "p"}}}]},
    {"workspaces": [{"name": "w", "repo": "https://a"}], "agents": [{"name": "a", "instructions": "x"}]},
]
BAD: list[dict[str, Any]] = [
    {"name": "A"},
    {"name": None},
    {"function": []},
    {"functions": {}},
    {"functions": ["f"]},
    {"functions": [{"entrypoint": "a:b"}]},
    {"functions": [{**FUNCTION, "timeoutSeconds": 0}]},
    {"functions": [{**FUNCTION, "timeoutSeconds": "soon"}]},
    {"functions": [{**FUNCTION, "public": "yes"}]},
    {"functions": [{**FUNCTION, "timeout": 3}]},
    {"functions": [{**FUNCTION, "schedules": [{"name": "s"}]}]},
    {"functions": [{**FUNCTION, "schedules": [{**DAILY, "cron": "daily"}]}]},
    {"functions": [{**FUNCTION, "schedules": [{**DAILY, "target": {}}]}]},
    {"functions": [{**FUNCTION, "schedules": [], "schedulers": []}]},
    {"functions": [{**FUNCTION, "regions": ["ber", "ber"]}]},
    {"functions": [{**FUNCTION, "env": [{"name": "A", "val": "x"}]}]},
    {"pools": [{"name": "p", "worker": {"type": "shel"}}]},
    {"schedules": [DAILY]},
    {"workspaces": [{"name": "w", "repo": "git@a"}]},
]


def accepts(text: str) -> bool:
    try:
        loads_project(text, "rota.yaml", Path(), ENVIRONMENT)
    except ManifestError:
        return False
    return True


@pytest.fixture(scope="module")
def validator() -> Any:
    return jsonschema_rs.validator_for(project_schema())


@pytest.mark.parametrize("project", GOOD, ids=str)
def test_what_is_a_project_is_one_to_an_editor_too(project: dict[str, Any], validator: Any) -> None:
    whole = {"name": "shop", **project}
    assert accepts(yaml.safe_dump(whole))
    assert [error.message for error in validator.iter_errors(whole)] == []


@pytest.mark.parametrize("project", BAD, ids=str)
def test_what_is_none_is_none_to_an_editor_either(project: dict[str, Any], validator: Any) -> None:
    whole = {"name": "shop", **project}
    assert not accepts(yaml.safe_dump(whole))
    assert not validator.is_valid(whole)


@pytest.mark.parametrize("section", [name for name in SECTIONS if name != "schedules"])
def test_the_examples_of_the_kinds_are_entries(section: str, validator: Any) -> None:
    for example in examples(SECTIONS[section].kind.name):
        whole = {"name": "shop", section: [{"name": "x", **example["spec"]}]}
        assert accepts(json.dumps(whole).replace("$", "$$"))
        assert [error.message for error in validator.iter_errors(whole)] == []


def test_the_starter_project_is_valid(validator: Any) -> None:
    files = contents("demo")
    assert validator.is_valid(yaml.safe_load(files["rota.yaml"]))
    assert files["rota.yaml"].startswith("# yaml-language-server: $schema=rota.schema.json\n")
    assert json.loads(files["rota.schema.json"]) == project_schema()


def test_every_field_says_what_it_is(validator: Any) -> None:
    for name, section in project_schema()["properties"].items():
        assert section["description"], name
        for field, schema in section.get("items", {}).get("properties", {}).items():
            described = [schema, *schema.get("anyOf", ())]
            assert any(one.get("description") for one in described), f"{name}.{field}"


def test_the_command_prints_it(rota: Terminal) -> None:
    assert json.loads(rota("schema").out) == project_schema()
