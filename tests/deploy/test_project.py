"""The project file: every problem at its place, all at once; and what it comes to."""

from __future__ import annotations

from pathlib import Path

import pytest

from rota.api import KINDS
from rota.manifest import ManifestError, dumps, loads
from rota.manifest.project import Project, load_project, loads_project
from rota.manifest.project_format import PROJECT_LABEL

FUNCTION = """\
name: shop
functions:
  - name: report
    entrypoint: main:handler
    source: {inline: x}
"""


def project(text: str, **environment: str) -> Project:
    return loads_project(text, "rota.yaml", Path(), environment)


def problems(text: str, **environment: str) -> list[str]:
    with pytest.raises(ManifestError) as refused:
        project(text, **environment)
    return [str(problem) for problem in refused.value.problems]


# What it comes to.


def test_everything_is_labelled_with_the_project() -> None:
    text = FUNCTION + "    schedules: [{name: a, cron: '@daily'}]\npools: [{name: p, worker: {}}]\n"
    text += "workspaces: [{name: w, repo: 'https://a'}]\nagents: [{name: g, instructions: be kind}]\n"
    text += "schedules: [{name: s, cron: '@daily', taskTemplate: {command: [a], workerPoolRef: {name: p}}}]\n"
    made = project(text).manifests
    assert [(one.kind.name, one.name) for one in made] == [
        ("Workspace", "w"),
        ("AgentConfig", "g"),
        ("WorkerPool", "p"),
        ("Function", "report"),
        ("Schedule", "report.a"),
        ("Schedule", "s"),
    ]
    assert all(one.object["metadata"]["labels"] == {PROJECT_LABEL: "shop"} for one in made)


def test_the_same_file_comes_to_the_same_objects_which_are_manifests_themselves() -> None:
    text = FUNCTION + "    schedules: [{name: a, cron: '@daily', payload: {b: 1, a: 2}}]\n"
    objects = [one.object for one in project(text).manifests]
    assert objects == [one.object for one in project(text).manifests]
    assert [one.object for one in loads(dumps(*objects), "out.yaml")] == objects


def test_only_what_is_written_is_in_the_objects() -> None:
    _, schedule = project(FUNCTION + "    schedules: [{name: a, cron: '@daily', payload: null}]\n").manifests
    assert schedule.object["spec"] == {"cron": "@daily", "target": {"functionRef": {"name": "report"}}}


def test_a_field_without_a_value_is_as_if_it_were_not_there_at_any_depth() -> None:
    text = "name: shop\npools:\n  - name: p\n    replicas:\n    worker: {type: shell, model: , env: }\n"
    (pool,) = project(text).manifests
    assert pool.object["spec"] == {"worker": {"type": "shell"}}
    unknown = "rota.yaml:6:13: pools[0].scale.mni: unknown field; did you mean min?"
    assert unknown in problems(text + "    scale: {mni: , min: 1, max: 2}\n")


def test_schedulers_are_schedules() -> None:
    _, schedule = project(FUNCTION + "    schedulers: [{name: a, cron: '@daily'}]\n").manifests
    assert (schedule.kind, schedule.name) == (KINDS["Schedule"], "report.a")


def test_a_function_with_nothing_but_a_name_and_schedules_is_only_mentioned() -> None:
    made = project("name: shop\nfunctions:\n  - name: f\n    schedules: [{name: a, cron: '@daily'}]\n")
    assert [one.kind.name for one in made.manifests] == ["Schedule"]
    assert made.mentioned == {"f": 3}


def test_an_empty_section_has_no_entries() -> None:
    assert project("name: shop\nfunctions:\npools: []\n").manifests == []


def test_secrets_are_named_and_never_written() -> None:
    text = FUNCTION + "    env: [{name: TOKEN, valueFrom: {secretKeyRef: {name: api, key: token}}}]\n"
    (function,) = project(text).manifests
    assert function.object["spec"]["env"][0]["valueFrom"] == {"secretKeyRef": {"name": "api", "key": "token"}}


# The environment.


def test_values_of_the_environment_are_put_in() -> None:
    text = "name: ${NAME}\npools:\n  - name: p\n    replicas: ${N}\n"
    text += "    worker:\n      type: codex\n      model: ${N}\n      effort: a-${N}-b\n"
    (pool,) = project(text, NAME="shop", N="3").manifests
    assert pool.object["spec"] == {"replicas": 3, "worker": {"type": "codex", "model": "3", "effort": "a-3-b"}}
    assert pool.object["metadata"]["labels"] == {PROJECT_LABEL: "shop"}


def test_in_quotes_a_value_of_the_environment_is_a_text() -> None:
    text = (
        FUNCTION
        + "    schedules:\n    - name: a\n      cron: '@daily'\n      payload:\n        n: ${N}\n        t: '${N}'\n"
    )
    _, schedule = project(text, N="3").manifests
    assert schedule.object["spec"]["payload"] == {"n": 3, "t": "3"}


@pytest.mark.parametrize("value", ["01234", "", "null", "a: b # c", "${N}", "1e999", "- x", "'"])
def test_whatever_a_variable_holds_is_a_value_and_nothing_else(value: str) -> None:
    text = "name: shop\nagents:\n  - name: a\n    instructions: ${N}\n"
    (agent,) = project(text, N=value).manifests
    assert agent.object["spec"] == {"instructions": value}


def test_two_dollars_are_one_and_one_before_anything_else_is_itself() -> None:
    text = "name: shop\nagents:\n  - name: a\n    instructions: '$${HOME} $HOME $5 $$$$ $'\n"
    (agent,) = project(text).manifests
    assert agent.object["spec"]["instructions"] == "${HOME} $HOME $5 $$ $"


def test_a_variable_that_is_not_set_is_told_with_its_name_and_place() -> None:
    assert problems("name: shop\npools:\n  - name: p\n    replicas: ${MANY}\n    worker: {model: '${WHICH}'}\n") == [
        "rota.yaml:4:15: pools[0].replicas: the environment variable MANY is not set; set it, or write $${ for ${",
        "rota.yaml:5:21: pools[0].worker.model: the environment variable WHICH is not set; set it, or write $${ for ${",
    ]


@pytest.mark.parametrize("use", ["${}", "${A-B}", "${A:-b}", "${A"])
def test_what_is_no_variable_is_told(use: str) -> None:
    (problem,) = problems(f"name: shop\nagents:\n  - name: a\n    instructions: '{use}'\n", A="a")
    assert f"{use} names no variable" in problem


def test_comments_and_keys_are_left_alone() -> None:
    text = "name: shop # ${NOT_SET}\n# ${NOT_SET}\n" + FUNCTION.removeprefix("name: shop\n")
    text += "    schedules: [{name: a, cron: '@daily', payload: {'${KEY}': 1}}]\n"
    _, schedule = project(text).manifests
    assert schedule.object["spec"]["payload"] == {"${KEY}": 1}


# What is wrong.


def test_an_unknown_key_is_told_with_its_place_and_the_nearest_known_one() -> None:
    text = "name: shop\nfunction: []\npools:\n  - name: p\n    replica: 3\n    worker: {tipe: shell}\n"
    text += "functions:\n  - name: f\n    schedules:\n      - {name: a, cron: '@daily', timezone: UTC}\n"
    assert problems(text) == [
        "rota.yaml:2:1: function: unknown key; did you mean functions?",
        "rota.yaml:5:5: pools[0].replica: unknown key; did you mean replicas?",
        "rota.yaml:6:14: pools[0].worker.tipe: unknown field; did you mean type?",
        "rota.yaml:10:35: functions[0].schedules[0].timezone: unknown key; did you mean timeZone?",
    ]


def test_two_of_a_name_are_told_with_both_lines() -> None:
    text = FUNCTION + "    schedules:\n      - {name: a, cron: '@daily'}\n      - {name: a, cron: '@hourly'}\n"
    text += "  - name: report\n    public: true\n"
    assert problems(text) == [
        'rota.yaml:8:16: functions[0].schedules[1].name: the schedule "a" is already on line 7',
        'rota.yaml:9:11: functions[1].name: the function "report" is already on line 3',
    ]


def test_functions_may_have_schedules_of_the_same_name() -> None:
    two = FUNCTION + "    schedules: [{name: a, cron: '@daily'}]\n"
    two += two.partition("functions:\n")[2].replace("report", "other")
    assert [one.name for one in project(two).manifests][2:] == ["report.a", "other.a"]


def test_a_name_with_a_dot_is_refused_as_it_could_be_two() -> None:
    (problem,) = problems("name: shop\npools:\n  - name: a.b\n    worker: {}\n")
    assert problem.startswith("rota.yaml:3:11: pools[0].name: 'a.b': a name has")


def test_schedules_under_two_words_are_refused() -> None:
    (problem,) = problems(FUNCTION + "    schedules: []\n    schedulers: []\n")
    assert problem == "rota.yaml:7:5: functions[0].schedulers: schedules and schedulers are the same; use one"


def test_a_bound_and_a_rule_are_told_in_the_words_of_the_file() -> None:
    assert problems(FUNCTION + "    timeoutSeconds: 9999\n    scale: {min: 5, max: 2}\n") == [
        "rota.yaml:6:21: functions[0].timeoutSeconds: Invalid value: 9999: timeoutSeconds in body should be less than "
        "or equal to 3600",
        "rota.yaml:7:18: functions[0].scale.min: Invalid value: min must not be greater than max",
    ]


def test_a_schedule_needs_a_cron_and_one_of_its_own_a_task() -> None:
    text = "name: shop\nfunctions:\n  - name: f\n    schedules: [{name: a}]\nschedules:\n  - name: s\n"
    assert problems(text) == [
        "rota.yaml:4:17: functions[0].schedules[0].cron: required",
        "rota.yaml:6:5: schedules[0].cron: required",
        "rota.yaml:6:5: schedules[0].taskTemplate: required",
    ]


def test_a_cron_with_seconds_is_told_in_words_and_only_once() -> None:
    text = "name: shop\nfunctions:\n  - name: f\n    schedules: [{name: a, cron: '0 */5 * * * *', enabled: 1}]\n"
    cron, enabled = problems(text)
    assert 'schedules[0].cron: Invalid value: "0 */5 * * * *": it has 6 fields, and must have 5' in cron
    assert "schedules[0].enabled" in enabled


def test_a_cron_that_never_ticks_and_a_zone_that_is_nowhere_are_told() -> None:
    text = "name: shop\nfunctions:\n  - name: f\n    schedules:\n      - {name: a, cron: '61 * * * *'}\n"
    text += "      - {name: b, cron: '@daily', timeZone: Mars/Base}\n"
    text += "schedules:\n  - {name: s, cron: '0 0 30 2 *', taskTemplate: {function: {name: f}}}\n"
    assert [problem.partition(";")[0] for problem in problems(text)] == [
        'rota.yaml:5:25: functions[0].schedules[0].cron: Invalid value: "61 * * * *": minute 61 is too high: it must be'
        " 0 to 59",
        'rota.yaml:6:45: functions[0].schedules[1].timeZone: Invalid value: "Mars/Base": it is no time zone',
        'rota.yaml:8:21: schedules[0].cron: Invalid value: "0 0 30 2 *": it never ticks: no month that it names has'
        " such a day",
    ]


@pytest.mark.parametrize("said", ["schedules: {a: '@daily'}", "entrypiont: a:b", "schedules:\n    schedulers: [{}]"])
def test_what_says_something_wrong_is_not_told_to_say_nothing(said: str) -> None:
    (problem,) = problems(f"name: shop\nfunctions:\n  - name: f\n    {said}\n")
    assert "it says nothing" not in problem


def test_a_function_that_says_nothing_is_refused() -> None:
    (problem,) = problems("name: shop\nfunctions:\n  - name: f\n")
    assert problem == "rota.yaml:3:5: functions[0]: it says nothing: give it entrypoint and path, or schedules"


def test_code_without_a_handler_and_a_handler_without_code_are_told() -> None:
    text = "name: shop\nfunctions:\n  - name: f\n    source: {inline: x}\n  - name: g\n    entrypoint: a:b\n"
    assert problems(text) == [
        "rota.yaml:3:5: functions[0].entrypoint: required: the handler as module:callable; or a command",
        "rota.yaml:5:5: functions[1].path: required: the folder or file with the code; or a source",
    ]


@pytest.mark.parametrize("path", ["/etc/hostname", "../elsewhere", "link", "link/main.py", "here/../.."])
def test_code_outside_of_the_project_is_refused(tmp_path: Path, path: str) -> None:
    for name in ("elsewhere", "shop/here"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "main.py").write_text("x = 1\n")
    (tmp_path / "shop" / "link").symlink_to(tmp_path / "elsewhere")
    text = f"name: shop\nfunctions:\n  - {{name: f, entrypoint: a:b, path: {path}}}\n"
    with pytest.raises(
        ManifestError, match=r"rota.yaml:3:38: functions\[0\].path: it leads out of the project's folder"
    ):
        loads_project(text, "rota.yaml", tmp_path / "shop", {})
    assert loads_project(text.replace(path, "here/../here"), "rota.yaml", tmp_path / "shop", {}).packs


def test_the_folder_of_a_project_may_be_a_link(tmp_path: Path) -> None:
    (tmp_path / "real" / "code").mkdir(parents=True)
    (tmp_path / "real" / "code" / "main.py").write_text("x = 1\n")
    (tmp_path / "linked").symlink_to("real")
    text = "name: shop\nfunctions:\n  - {name: f, entrypoint: a:b, path: code}\n"
    assert loads_project(text, "rota.yaml", tmp_path / "linked", {}).packs


@pytest.mark.parametrize(("path", "why"), [('"a\\0b"', "no path"), ("loop", "loop: too many levels of symbolic links")])
def test_what_is_no_path_is_told(tmp_path: Path, path: str, why: str) -> None:
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(ManifestError, match=why):
        loads_project(
            f"name: shop\nfunctions:\n  - {{name: f, entrypoint: a:b, path: {path}}}\n", "rota.yaml", tmp_path, {}
        )


def test_a_path_that_is_not_there_is_told() -> None:
    (problem,) = problems("name: shop\nfunctions:\n  - {name: f, entrypoint: a:b, path: nowhere}\n")
    assert problem == "rota.yaml:3:38: functions[0].path: nowhere: no such file or directory"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "rota.yaml: empty; it begins with name: NAME"),
        ("- a\n", "rota.yaml:1:1: a project file begins with name:"),
        ("functions: []\n", "rota.yaml:1:1: name: required: a name has 1 to 63"),
        ("name: a\n---\nname: b\n", "rota.yaml:3:1: a project file is one document; remove the ---"),
        ("name: a\npools: {p: {}}\n", "rota.yaml:2:8: pools: a list of entries is expected here"),
        ("name: a\npools: [p]\n", "rota.yaml:2:9: pools[0]: an entry is a map with a name"),
        ("name: a\npools: [{worker: {}}]\n", "rota.yaml:2:9: pools[0].name: required"),
        ("name: [\n", "rota.yaml:2:1: "),
    ],
)
def test_what_is_no_project_is_told_as_such(text: str, problem: str) -> None:
    assert problems(text)[0].startswith(problem)


def test_a_file_that_is_not_there_is_told_with_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(ManifestError, match=r"rota.yaml: no such file or directory; `rota init` writes one"):
        load_project(str(tmp_path), {})
