"""The states of a task are built in the modules that the contract of the controllers names, and nowhere else."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import rota
from rota import control
from rota.api.meta import ObjectStatus
from rota.api.task import TaskStatus

SOURCE = Path(rota.__file__).parent
STATE = {*TaskStatus.__struct_fields__} - {*ObjectStatus.__struct_fields__}
"""The parts of the state of a task."""


def builders() -> set[str]:
    """Return the modules that the contract names."""
    [said] = re.findall(r"- \*One builder of a task's states\.\* (.+?)(?=\n- )", control.__doc__ or "", re.DOTALL)
    return {f"control/{one.replace('.', '/')}.py" for one in re.findall(r"`([a-z_.]+)`", said)}


def built(text: str) -> Iterator[str]:
    """Yield the calls of a module that build a state of a task."""
    tree = ast.parse(text)
    imported = {one.name for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for one in node.names}
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        called, given = ast.unparse(node.func).rpartition(".")[2], {one.arg for one in node.keywords}
        is_made = called == "TaskStatus" and bool(node.args or node.keywords)
        is_changed = called == "replace" and bool(imported & {"Task", "TaskStatus"}) and bool(given & STATE)
        if is_made or is_changed:
            yield ast.unparse(node)


def test_a_state_of_a_task_is_built_where_the_contract_says() -> None:
    modules = (SOURCE / "control").rglob("*.py")
    found = {path.relative_to(SOURCE).as_posix(): [*built(path.read_text())] for path in modules}
    assert {path: calls for path, calls in found.items() if calls and path not in builders()} == {}
    assert {path for path in builders() if not found[path]} == set(), "what the contract names builds some"


@pytest.mark.parametrize(
    "call",
    [
        "TaskStatus(phase='Running')",
        "msgspec.structs.replace(status, phase='Running')",
        "msgspec.structs.replace(status, reason=None, message=None)",
        "replace(status, instance_name='p-0')",
    ],
)
def test_a_state_that_is_built_elsewhere_is_found(call: str) -> None:
    assert [*built(f"from rota.api import Task\n{call}\n")] == [call]
    assert not [*built("from rota.api import Task\nstatus = task.status or TaskStatus()\n")]
