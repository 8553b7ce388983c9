"""Metrics of claims, and of their pools."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from rota.api import Claim
from rota.engine.metrics import Labels, Metrics
from rota.pools import Ledger

OUTCOMES = {404: "Lost", 409: "Lost", 422: "Lost", 499: "Cancelled"}
"""The outcome of a refused binding, by the status code."""


class ClaimCounting:
    """Counts claims by namespace and pool."""

    def __init__(self, metrics: Metrics) -> None:
        where = ("namespace", "pool")
        self._metrics = metrics
        self._bindings = metrics.counter(
            "rota_claim_bindings_total", "Instances that were to be given to a claim.", (*where, "outcome")
        )
        self._ended = metrics.counter("rota_claims_ended_total", "Claims that are over.", (*where, "outcome"))
        self._waited = metrics.histogram("rota_claim_wait_seconds", "From when a claim came until it got one.", where)
        self._bound = metrics.histogram("rota_claim_bind_seconds", "How long it took to write that down.", where)
        self._held = metrics.histogram("rota_claim_hold_seconds", "How long an instance was held.", where)

        self._reset = metrics.histogram(
            "rota_pool_reset_seconds", "From when an instance was given back until it could be had again.", where
        )

    def forget(self, namespace: str, pool: str) -> None:
        """Drop the series of a deleted pool."""
        for series in (self._bindings, self._ended, self._waited, self._bound, self._held, self._reset):
            series.forget((namespace, pool))

    def was_reset(self, namespace: str, pool: str, seconds: float) -> None:
        self._reset.observe((namespace, pool), seconds)

    def watch(self, ledgers: Callable[[], Mapping[Labels, Ledger]]) -> None:
        """Add gauges of free and bound instances, which read these ledgers."""
        where = ("namespace", "pool")
        self._metrics.gauge(
            "rota_pool_ready",
            "Instances that can be had at once.",
            where,
            read=lambda: {pool: float(ledger.free) for pool, ledger in ledgers().items()},
        )
        self._metrics.gauge(
            "rota_pool_in_flight",
            "Instances that are just being given to somebody.",
            where,
            read=lambda: {pool: float(ledger.in_flight) for pool, ledger in ledgers().items()},
        )

    def bound(self, claim: Claim, waited: float, took: float) -> None:
        where = _where(claim)
        self._bindings.add((*where, "Bound"))
        self._waited.observe(where, max(0.0, waited))
        self._bound.observe(where, max(0.0, took))

    def not_bound(self, claim: Claim, code: int) -> None:
        self._bindings.add((*_where(claim), OUTCOMES.get(code, "Failed")))

    def ended(self, claim: Claim, now: float) -> None:
        """Count an ended claim, by its last status."""
        status, where = claim.status, _where(claim)
        if status is None:
            return
        self._ended.add((*where, status.reason or status.phase or ""))
        if status.bound_time is not None:
            self._held.observe(where, max(0.0, now - status.bound_time.timestamp()))


def _where(claim: Claim) -> Labels:
    return claim.metadata.namespace, claim.spec.pool_ref.name
