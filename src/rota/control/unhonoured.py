"""Settings for a cluster that have no effect on one machine. The condition Honoured names them.

The object is ready nevertheless, so that one manifest can be used in both places.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rota.api import Condition, Function, Object, Task, WorkerPool
from rota.api.instance import InstanceTemplate
from rota.api.parts import Resources
from rota.api.worker import WorkerConfig
from rota.control.gate import status_of
from rota.engine import Context

HONOURED = "Honoured"
NOT_HONOURED = "NotHonoured"
NO_IMAGE = "it runs as a process of this machine, which has to have installed what the image holds"
NO_POD = "there are no Pods here"
NOTHING_RESERVED = "nothing is reserved on one machine, where resources.limits bound what is used"


def unhonoured(obj: Object) -> list[str]:
    """Return the settings of an object that have no effect here, each with the reason."""
    if isinstance(obj, WorkerPool):
        spec = obj.spec
        found = _of_worker(spec.worker, "spec.worker") if spec.worker is not None else []
        if spec.template is not None:
            found = of_template(spec.template, "spec.template.")
        return found
    if isinstance(obj, Task):
        return _of_worker(obj.spec.worker, "spec.worker") if obj.spec.worker is not None else []
    if isinstance(obj, Function):
        return list(_of_resources(obj.spec.resources, "spec.resources"))
    return []


def of_template(template: InstanceTemplate, prefix: str) -> list[str]:
    """Return the settings of an instance template that have no effect here. `prefix` is the path of the template."""
    found = []
    for i, container in enumerate(template.containers):
        at = f"{prefix}containers[{i}]"
        if container.image is not None and template.runtime != "container":
            found.append(_no_effect(f"{at}.image", NO_IMAGE))
        found += _of_resources(container.resources, f"{at}.resources")
    if template.instance_type is not None:
        found.append(_no_effect(f"{prefix}instanceType", NOTHING_RESERVED))
    if template.requests is not None:
        found.append(_no_effect(f"{prefix}requests", NOTHING_RESERVED))
    return found


def conditions(obj: Object, found: Sequence[str]) -> list[Condition]:
    """Return the condition Honoured for these settings; none for an object that never had one."""
    if found:
        return [Condition(type=HONOURED, status="False", reason=NOT_HONOURED, message="; ".join(found))]
    before = status_of(obj).condition(HONOURED)
    return [] if before is None else [Condition(type=HONOURED, status="True", reason=HONOURED)]


def record_unhonoured(context: Context, obj: Object, said: Sequence[Condition]) -> None:
    """Record an Event if the condition is new. `obj` is the object before `said` was written to its status."""
    before = status_of(obj).condition(HONOURED)
    for condition in said:
        if condition.status == "False" and (before is None or before.message != condition.message):
            context.warn_once(obj, condition.reason, condition.message)


def _of_worker(config: WorkerConfig, at: str) -> list[str]:
    found = [_no_effect(f"{at}.image", NO_IMAGE)] if config.image is not None else []
    found += _of_resources(config.resources, f"{at}.resources")
    return [*found, *([_no_effect(f"{at}.podOverrides", NO_POD)] if config.pod_overrides else [])]


def _of_resources(resources: Resources | None, at: str) -> Iterator[str]:
    if resources is not None and resources.requests is not None:
        yield _no_effect(f"{at}.requests", NOTHING_RESERVED)


def _no_effect(field: str, why: str) -> str:
    return f"{field} changes nothing here: {why}"
