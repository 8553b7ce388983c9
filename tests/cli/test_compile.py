"""`rota compile`: the objects of a project, as manifests."""

from __future__ import annotations

import json

from tests.cli.conftest import Terminal

PROJECT = "name: shop\npools: [{name: p, worker: {}}]\nagents: [{name: a}]\n"


def test_the_objects_are_printed_as_manifests_that_apply_takes(rota: Terminal) -> None:
    ran = rota("compile", "-f", rota.write("rota.yaml", PROJECT))
    assert ran.code == 0 and "rota.dev/project: shop" in ran.out
    assert rota("apply", "-f", rota.write("out.yaml", ran.out)).code == 0
    assert rota("deploy", "-f", rota.write("rota.yaml", PROJECT)).out.count("1 unchanged") == 2


def test_they_can_be_had_as_json(rota: Terminal) -> None:
    ran = rota("compile", "-o", "json", "-f", rota.write("rota.yaml", PROJECT))
    assert [item["kind"] for item in json.loads(ran.out)["items"]] == ["AgentConfig", "WorkerPool"]


def test_a_bad_file_is_told_and_nothing_is_printed(rota: Terminal) -> None:
    ran = rota("compile", "-f", rota.write("rota.yaml", PROJECT + "pols: []\n"))
    assert (ran.code, ran.out) == (2, "") and "rota.yaml:4:1: pols: unknown key; did you mean pools?" in ran.err


def test_a_project_with_nothing_in_it_is_nothing(rota: Terminal) -> None:
    ran = rota("compile", "-f", rota.write("rota.yaml", "name: shop\n"))
    assert (ran.code, ran.out) == (0, "")
