"""Amounts of the resources that a quota counts: instances, CPU, memory, storage."""

from __future__ import annotations

from typing import NamedTuple

from rota.api.cell import Budget, Used
from rota.control.instances import Size
from rota.control.instances.template import UNIT_NANOS, nanos

NANOS_A_MILLI = UNIT_NANOS // 1000


class Amount(NamedTuple):
    """An amount of each counted resource."""

    instances: int = 0
    cpu_nanos: int = 0
    memory_bytes: int = 0
    storage_bytes: int = 0

    def plus(self, other: Amount, times: int = 1) -> Amount:
        return Amount(*(mine + times * theirs for mine, theirs in zip(self, other, strict=True)))


class Bound(NamedTuple):
    """The most that may be used of each resource. None: no bound."""

    instances: int | None = None
    cpu_nanos: int | None = None
    memory_bytes: int | None = None
    storage_bytes: int | None = None

    def short(self, used: Amount, one: Amount) -> list[str]:
        """Return the names of the resources that do not suffice for one more such amount."""
        return [
            name
            for name, most, has, more in zip(NAMES, self, used, one, strict=True)
            if most is not None and more > 0 and has + more > most
        ]

    def room(self, used: Amount, one: Amount) -> int | None:
        """Return how many more such amounts fit. None: any number."""
        each = zip(self, used, one, strict=True)
        rooms = [(most - has) // more for most, has, more in each if most is not None and more]
        return max(0, min(rooms)) if rooms else None


NAMES = ("instances", "cpu", "memory", "storage")


def names_of(hard: Budget) -> list[str]:
    """Return the names of the resources that a budget bounds."""
    return [name for name, most in zip(NAMES, bound_of(hard), strict=True) if most is not None]


def amount_of(size: Size) -> Amount:
    """Return the amount that an instance of a size takes. A resource without a size is not counted."""
    return Amount(1, size.cpu_nanos or 0, size.memory_bytes or 0, size.storage_bytes or 0)


def bound_of(hard: Budget | Used) -> Bound:
    return Bound(
        hard.instances,
        None if hard.cpu is None else nanos(hard.cpu),
        None if hard.memory is None else nanos(hard.memory) // UNIT_NANOS,
        None if hard.storage is None else nanos(hard.storage) // UNIT_NANOS,
    )


def used_of(amount: Amount) -> Used:
    """Return an amount in the form of a status."""
    instances, cpu, memory, storage = amount
    return Used(
        instances=instances,
        cpu=_cpu_text(cpu) if cpu else None,
        memory=str(memory) if memory else None,
        storage=str(storage) if storage else None,
    )


def parsed(used: Used | None) -> Amount:
    """Read an amount from a status."""
    return Amount(*(each or 0 for each in bound_of(used or Used())))


def _cpu_text(cpu_nanos: int) -> str:
    if cpu_nanos % UNIT_NANOS == 0:
        return str(cpu_nanos // UNIT_NANOS)
    return f"{cpu_nanos // NANOS_A_MILLI}m" if cpu_nanos % NANOS_A_MILLI == 0 else f"{cpu_nanos}n"
