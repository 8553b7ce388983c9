"""Projects to be tested."""

from __future__ import annotations

NIGHTLY = """
name: shop
functions:
  - name: report
    entrypoint: main:handler
    source:
      inline: |
        def handler(event, context):
            if event.get("fail"):
                raise ValueError("no such shop")
            return {"said": event.get("schedule", {}).get("scheduledTime"), "by": context.function}
    schedules:
      - name: nightly
        cron: "0 3 * * *"
        payload: {full: true}
"""
COMMANDS = """
name: shop
pools:
  - name: workers
    replicas: 1
    worker: {type: shell}
schedules:
  - name: tidy
    cron: "*/10 * * * *"
    taskTemplate: {command: [sh, tidy.sh], workerPoolRef: {name: workers}}
"""
MARCH = "2026-03-01T00:00:00Z"


def with_field(text: str, field: str) -> str:
    """A project with one more field of its schedule."""
    at = text.index("cron:")
    indent = at - text.rindex("\n", 0, at) - 1
    return f"{text[:at]}{field}\n{' ' * indent}{text[at:]}"
