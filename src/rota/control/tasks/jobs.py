"""Build the job of a Task for its runner. The Secrets of the task are read anew for each attempt."""

from __future__ import annotations

from collections.abc import Sequence

from rota.api import Instance, Task, WorkerPool
from rota.api.egress import Policy
from rota.api.parts import EnvVar
from rota.api.worker import AGENT_TYPES, WorkerRole
from rota.control.agents import AGENTS
from rota.control.inputs import host_files, made_for, reach, refusal
from rota.control.instances.states import MORE_NETWORK, NOT_ISOLATED
from rota.control.networks import beyond_policy
from rota.control.schedules.making import environment as told_by_schedule
from rota.control.tasks.templating import environment, given, given_environment
from rota.control.values import secret
from rota.engine.objects import Objects, get
from rota.runtime.composing import TREE
from rota.runtime.runner.jobs import Job, Parse

NO_POLICY = Policy()
NOT_AN_AGENT = "a prompt is for a worker of an agent's type; one of type {} runs commands"
CREDENTIALS_KEY = "key"


class CannotRun(Exception):  # noqa: N818
    """A task asks for something that its worker cannot or must not do."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


def worker_of(objects: Objects, task: Task, policy: Policy = NO_POLICY) -> tuple[WorkerRole, Sequence[EnvVar]]:
    """Return the role of the worker that runs a task, and the worker's variables. Raises CannotRun."""
    config = task.spec.worker
    ref = task.spec.worker_pool_ref
    pool = get(objects, WorkerPool, ref.name, task.metadata.namespace) if ref is not None else None
    if pool is not None:
        _check_isolation(objects, task, pool, policy)
        config = pool.spec.worker
    if config is not None:
        return config, config.env
    if pool is None:
        return WorkerRole(), []
    template = pool.spec.template
    assert template is not None
    if template.worker is None:
        raise CannotRun(
            "NoRunner", f"WorkerPool/{pool.metadata.name} has no worker: it can be claimed, but runs no tasks"
        )
    return template.worker, template.containers[0].env


def _check_isolation(objects: Objects, task: Task, pool: WorkerPool, policy: Policy) -> None:
    for part in (pool.spec.worker, pool.spec.template):
        if part is not None and part.isolation == "none":
            why = NOT_ISOLATED
        elif part is not None and beyond_policy(part.network, part.egress, policy):
            why = MORE_NETWORK
        else:
            why = host_files(objects, pool.metadata.namespace, part.workspace_ref) if part is not None else ""
        if why and (refused := refusal(objects, f"WorkerPool/{pool.metadata.name}", why, task, pool)):
            raise CannotRun("NotAllowed", refused)


def check(task: Task, role: WorkerRole, env: Sequence[EnvVar] = ()) -> None:
    """Check that a worker of this role, with these variables, can run a task. Raises CannotRun or TemplateError."""
    check_role(task, role)
    dependencies = task.status.dependencies if task.status is not None else []
    given(task.spec, dependencies)
    given_environment(env, dependencies)


def check_role(task: Task, role: WorkerRole) -> None:
    """Check that a worker of this role can run a task. Raises CannotRun."""
    if task.spec.prompt is not None and role.type not in AGENT_TYPES:
        raise CannotRun("NotAnAgent", NOT_AN_AGENT.format(role.type))


def job(objects: Objects, task: Task, instance: Instance, id_: str, log: str) -> Job:
    """Return the job of a task. Raises what `check` raises."""
    if why := reach(objects, instance):
        where, made = f"Instance/{instance.metadata.name}", made_for(objects, instance)
        if refused := refusal(objects, where, why, task, instance, made):
            raise CannotRun("NotAllowed", refused)
    role = instance.spec.worker or WorkerRole()
    env = instance.spec.containers[0].env
    dependencies = task.status.dependencies if task.status is not None else []
    check_role(task, role)
    filled = given(task.spec, dependencies)
    argv, stdin, parse = filled.command, filled.stdin, "plain"
    if task.spec.prompt is not None:
        argv, parse = _agent(role)
        stdin = filled.prompt
    return Job(
        id=id_,
        kind="python" if role.type == "python" and task.spec.prompt is None else "command",
        argv=argv,
        env={
            **given_environment(env, dependencies),
            **environment(dependencies),
            **_credentials(objects, task.metadata.namespace, role),
            **(_wishes(role) if task.spec.prompt is not None else {}),
            **told_by_schedule(task.metadata.name, task.metadata.annotations),
            "ROTA_TASK": task.metadata.name,
            "ROTA_ATTEMPT": id_,
            "ROTA_NAMESPACE": task.metadata.namespace,
            **({"ROTA_BRANCH": task.spec.branch} if task.spec.branch else {}),
        },
        cwd=TREE,
        stdin=stdin,
        parse=parse,  # type: ignore[arg-type]
        timeout_seconds=task.spec.timeout_seconds,
        log=log,
    )


def _agent(role: WorkerRole) -> tuple[tuple[str, ...], Parse]:
    known = AGENTS.get(role.type)
    if known is None:
        return tuple(role.entrypoint), "plain"
    model = [one.format(role.model) for one in known.model] if role.model else ()
    effort = [one.format(role.effort) for one in known.effort] if role.effort else ()
    last = known.argv[-1:] if known.argv[-1] == "-" else ()
    return (*known.argv[: len(known.argv) - len(last)], *model, *effort, *last), known.parse


def _wishes(role: WorkerRole) -> dict[str, str]:
    """Return the variables with model and effort. An agent that Rota knows gets them as arguments instead."""
    if role.type in AGENTS:
        return {}
    wished = {"ROTA_MODEL": role.model, "ROTA_EFFORT": role.effort}
    return {name: one for name, one in wished.items() if one is not None}


def _credentials(objects: Objects, namespace: str, role: WorkerRole) -> dict[str, str]:
    """Return the values of the Secret as variables. The key named `key`, or the only one, is the agent's credential."""
    credentials = role.credentials
    if credentials is None or credentials.secret_ref is None:
        return {}
    values = {
        key: one.decode(errors="replace")
        for key, one in secret(objects, namespace, credentials.secret_ref.name).items()
    }
    known = AGENTS.get(role.type)
    main = known.credentials.get(credentials.type) if known is not None else None
    found = values.get(CREDENTIALS_KEY) or (next(iter(values.values())) if len(values) == 1 else None)
    named = {main: found} if main is not None and found is not None and main not in values else {}
    return {**{key: one for key, one in values.items() if key.isidentifier()}, **named}
