"""Fill outputs of dependencies into the fields of a task: `{{ tasks.NAME.outputs.KEY }}`, in one pass.

A filled-in value is never evaluated again. In a command, an expression has to be a whole element: a script reads the
value from its environment, where no character of it has a meaning for a shell. Two literal braces are written `{{ "{{"
}}`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from rota.api.parts import EnvVar
from rota.api.task import Dependency, TaskSpec
from rota.api.templates.checks import VARIABLE_PREFIX, variable
from rota.api.templates.expressions import EXPRESSION, TemplateError, output_of
from rota.runtime.runner.jobs import JOB_BYTES_MAX


class Results:
    """The outputs of a task's dependencies. The text that is filled in has a bound, however often a template asks."""

    def __init__(self, dependencies: Iterable[Dependency]) -> None:
        self._known = {dependency.name: dependency for dependency in dependencies}
        self._left = JOB_BYTES_MAX

    def value(self, expression: str, where: str) -> str:
        """Return the value of an expression. Raises TemplateError."""
        named = output_of(expression)
        if named is None:
            raise TemplateError(f"{where}: {expression!r} is not understood; write tasks.NAME.outputs.KEY")
        name, key = named
        if name not in self._known:
            there = ", ".join(sorted(self._known)) or "none"
            raise TemplateError(f"{where}: {name} is none of the tasks that it depends on, which are: {there}")
        outputs = self._known[name].outputs
        if key not in outputs:
            there = ", ".join(sorted(outputs)) or "none"
            raise TemplateError(f"{where}: task {name} has no output {key}; it has: {there}")
        self._left -= len(outputs[key])
        if self._left < 0:
            raise TemplateError(f"{where}: results of other tasks would have more than {JOB_BYTES_MAX} characters")
        return outputs[key]


class Given(NamedTuple):
    """The filled-in command and texts of a task."""

    command: tuple[str, ...]
    stdin: str
    prompt: str


def given(spec: TaskSpec, dependencies: Sequence[Dependency]) -> Given:
    """Fill in the command and the texts of a task. Raises TemplateError."""
    known = Results(dependencies)
    return Given(
        tuple(_element(i, text, known) for i, text in enumerate(spec.command)),
        render(spec.stdin or "", known, "stdin"),
        render(spec.prompt or "", known, "prompt"),
    )


def given_payload(spec: TaskSpec, dependencies: Sequence[Dependency]) -> dict[str, Any]:
    """Return the event of a function, filled in if the task has dependencies. Raises TemplateError.

    Without dependencies the event is data of a caller, and no text in it is an expression.
    """
    payload = spec.function.payload or {} if spec.function is not None else {}
    if not spec.depends_on:
        return payload
    known = Results(dependencies)
    filled: dict[str, Any] = _filled(payload, known, "function.payload")
    return filled


def _filled(value: Any, known: Results, where: str) -> Any:
    if isinstance(value, dict):
        return {key: _filled(one, known, f"{where}.{key}") for key, one in value.items()}
    if isinstance(value, list):
        return [_filled(one, known, f"{where}[{i}]") for i, one in enumerate(value)]
    return render(value, known, where) if isinstance(value, str) else value


def given_environment(env: Iterable[EnvVar], dependencies: Sequence[Dependency]) -> dict[str, str]:
    """Return the variables of a worker that have expressions, filled in. Raises TemplateError."""
    known = Results(dependencies)
    return {
        one.name: render(one.value, known, f"env {one.name}")
        for one in env
        if one.value is not None and "{{" in one.value and EXPRESSION.search(one.value)
    }


def render(text: str, known: Results, where: str) -> str:
    """Return a text with every expression filled in."""
    if "{{" not in text:
        return text
    return EXPRESSION.sub(lambda found: known.value(found[1].rstrip(), where) if found[1] else "{{", text)


def renamed(text: str, names: Mapping[str, str]) -> str:
    """Return a text whose expressions refer to tasks by their new names."""

    def rename(found: re.Match[str]) -> str:
        named = output_of((found[1] or "").rstrip())
        if named is None or named[0] not in names:
            return found[0]
        return f"{{{{ tasks.{names[named[0]]}.outputs.{named[1]} }}}}"

    return EXPRESSION.sub(rename, text) if "{{" in text else text


def _element(index: int, text: str, known: Results) -> str:
    where = f"command[{index}]"
    found = next((one for one in EXPRESSION.finditer(text) if one[1]), None) if "{{" in text else None
    if found is None:
        return render(text, known, where)
    if found[0] != text:
        raise TemplateError(
            f"{where}: {found[0]} must be the whole element; a script reads it from its environment, as"
            f" {_variable_of(found[1].rstrip()) or f'{VARIABLE_PREFIX}NAME_KEY'}"
        )
    return known.value(found[1].rstrip(), where)


def environment(dependencies: Sequence[Dependency]) -> dict[str, str]:
    """Return the outputs of dependencies as variables ROTA_TASKS_NAME_KEY. Of two with the same name, the later one.

    The outputs of a retry are also under the name of the first try, so that a script need not know of it.
    """
    return {
        variable(name, key): value
        for dependency in dependencies
        for name in filter(None, (dependency.retry_of, dependency.name))
        for key, value in sorted(dependency.outputs.items())
    }


def _variable_of(expression: str) -> str:
    named = output_of(expression)
    return variable(*named) if named is not None else ""
