"""Templates: `{{ … }}` in what tasks are given.

- `{{ tasks.NAME.outputs.KEY }}` is filled in by the task itself, from its dependencies.
- `{{ schedule.FIELD }}` is filled in by the schedule that makes the task.
- `{{ item.FIELD }}` is filled in by the spawner that makes the task.

An expression that cannot be filled in is refused when the object is written, as far as the object alone shows it.
"""

from rota.api.templates.checks import SCHEDULE_TEMPLATES, SPAWNER_TEMPLATES, TASK_TEMPLATES, WORKER_TEMPLATES
from rota.api.templates.expressions import LITERAL, TemplateError

__all__ = [
    "LITERAL",
    "SCHEDULE_TEMPLATES",
    "SPAWNER_TEMPLATES",
    "TASK_TEMPLATES",
    "WORKER_TEMPLATES",
    "TemplateError",
]
