"""Samples of the CPU use of deployments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from rota.api import Instance
from rota.client import Key
from rota.control.instances.names import subject_of
from rota.control.instances.reasons import is_ready
from rota.control.making.interface import InstanceResources
from rota.runtime.interface import Subject

TICK_SECONDS = 15.0
"""Pause between two samples of a deployment."""
SHARE_MIN = 0.5
"""The least share of wanted instances that must have been measured for an average."""


class _Sample(NamedTuple):
    at: float
    seconds: float
    """CPU time since the instance began."""


class _Average(NamedTuple):
    at: float
    percent: int | None


class Sampler:
    """Keeps the last sample of each instance, and the last average of each deployment."""

    def __init__(self, resources: InstanceResources) -> None:
        self._resources = resources
        self._samples: dict[Key, dict[Subject, _Sample]] = {}
        self._averages: dict[Key, _Average] = {}

    def forget(self, deployment: Key) -> None:
        self._samples.pop(deployment, None)
        self._averages.pop(deployment, None)

    async def percent(
        self, deployment: Key, instances: Sequence[Instance], *, wanted: int, cores: float, now: float
    ) -> int | None:
        """Return the average CPU use of the ready instances since the last sample.

        None: less than SHARE_MIN of the wanted instances have two samples.
        """
        known = self._averages.get(deployment)
        if known is not None and now - known.at < TICK_SECONDS:
            return known.percent
        subjects = [subject_of(one) for one in instances if is_ready(one)]
        found = await self._resources.cpu_seconds(subjects)
        before = self._samples.get(deployment, {})
        after = {subject: _Sample(now, seconds) for subject, seconds in found.items()}
        rates = [rate for one, sample in after.items() if (rate := _rate(before.get(one), sample)) is not None]
        enough = rates and len(rates) >= wanted * SHARE_MIN
        average = round(100 * sum(rates) / len(rates) / cores) if enough else None
        self._samples[deployment], self._averages[deployment] = after, _Average(now, average)
        return average


def _rate(before: _Sample | None, after: _Sample) -> float | None:
    """Return the CPUs in use between two samples; None: there is no earlier sample, or a restart in between."""
    if before is None or after.at <= before.at or after.seconds < before.seconds:
        return None
    return (after.seconds - before.seconds) / (after.at - before.at)
