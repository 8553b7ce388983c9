"""The progress of a rollout, by the status of its pool."""

from __future__ import annotations

from typing import Any

import pytest

from rota.cli.rollout import progress


def pool(spec: dict[str, Any], phase: str = "Ready", **counts: int) -> dict[str, Any]:
    return {"metadata": {"generation": 2}, "spec": spec, "status": {"observedGeneration": 2, "phase": phase, **counts}}


@pytest.mark.parametrize(
    ("spec", "there", "done"),
    [
        ({}, 1, True),
        ({"replicas": 3}, 3, True),
        ({"replicas": 3}, 4, False),
        ({"scale": {"min": 1, "max": 5}}, 4, True),
        ({"scale": {"min": 0, "max": 5}}, 0, True),
        ({"scale": {"min": 2, "max": 5}}, 1, False),
        ({"scale": {"min": 1, "max": 5}}, 7, False),
    ],
)
def test_a_rollout_is_done_when_all_that_shall_be_there_are_of_the_newest_template(
    spec: dict[str, Any], there: int, done: bool
) -> None:
    assert progress(pool(spec, replicas=there, updatedReplicas=there, readyReplicas=there))[0] is done


def test_a_rollout_says_how_far_it_is_and_what_holds_it() -> None:
    rolling = pool({"scale": {"min": 1, "max": 5}}, "Degraded", replicas=4, updatedReplicas=1, readyReplicas=3)
    rolling["status"]["conditions"] = [{"type": "Ready", "reason": "CrashLoop", "message": "agents-3 ends at once"}]
    assert progress(rolling) == (
        False,
        "1 of 4 are of the newest template, 3 ready; CrashLoop: agents-3 ends at once",
    )


def test_what_is_not_observed_yet_is_not_done() -> None:
    old = pool({"replicas": 1}, replicas=1, updatedReplicas=1, readyReplicas=1)
    old["metadata"]["generation"] = 3
    assert progress(old) == (False, "its newest form is not observed yet")
