"""Benchmark of the server over HTTPS, beside kube-apiserver and etcd under the same load.

`python -m bench.objects [--quick] [--json FILE]`

Needs `wrk`. kube-apiserver is measured if `KUBEBUILDER_ASSETS` names a folder with it and etcd. All servers have Rota's
kinds, TLS, a token for each request, and durable writes.

kube-apiserver has no controllers, so Rota is measured twice: `rota alone` is `rota up --no-controllers`, which does the
same as kube-apiserver; `rota` is `rota up`, whose controllers act on the created objects in the same process. wrk loads
one server at a time and uses little of the two cores. CPU is the processor time of the server's processes for one
operation.
"""

from __future__ import annotations

import os
import shutil
import statistics
import sys
import tempfile
from pathlib import Path

from bench.harness import Report, arguments, save
from bench.objects_load import Target, fan_out, load, watch_latency
from bench.objects_targets import kubernetes, rota, rota_alone

CONNECTIONS = (16, 64)
SECONDS, SECONDS_QUICK = 5, 2
LISTED = 5000
LIST_RUNS = 7
WATCHERS = 1000
WATCHED_WRITES = 50
LATENCY_WRITES, LATENCY_WRITES_QUICK = 300, 100


def measure(target: Target, seconds: int, latency_writes: int) -> dict[str, float]:
    """Return all figures of one server."""
    figures = {"start, s": target.start_seconds, "RSS idle, MiB": target.resident_mib()}
    for connections in CONNECTIONS:
        for what in ("create", "status patch", "get"):
            rate, cpu_ms = load(target, what, connections, seconds)
            figures[f"{what}s/s, {connections} connections"] = rate
            if connections == CONNECTIONS[0]:
                figures[f"CPU ms per {what}"] = cpu_ms
    target.fill(LISTED)
    figures[f"list of {LISTED:,}, ms"] = statistics.median(target.time_list() for _ in range(LIST_RUNS))
    p50, p99 = watch_latency(target, latency_writes)
    figures["watch latency p50, ms"], figures["watch latency p99, ms"] = p50, p99
    figures[f"deliveries/s to {WATCHERS:,} watchers"] = fan_out(target, WATCHERS, WATCHED_WRITES)
    figures["RSS at the end, MiB"] = target.resident_mib()
    return figures


def main() -> None:
    options = arguments("Measure the server beside kube-apiserver.").parse_args()
    if shutil.which("wrk") is None:
        sys.exit("this needs wrk (Debian: apt-get install wrk)")
    measured: dict[str, dict[str, float]] = {}
    seconds = SECONDS_QUICK if options.quick else SECONDS
    latency_writes = LATENCY_WRITES_QUICK if options.quick else LATENCY_WRITES
    has_peer = bool(os.environ.get("KUBEBUILDER_ASSETS"))
    for start in (rota_alone, rota, kubernetes) if has_peer else (rota_alone, rota):
        with tempfile.TemporaryDirectory() as folder, start(Path(folder)) as target:
            print(f"measuring {target.name} …", file=sys.stderr, flush=True)
            measured[target.name] = measure(target, seconds, latency_writes)
    ours, peers = list(measured)[:2], list(measured)[2:]
    report = Report("over HTTPS", [*measured, *(f"{name} : kube" for name in ours if has_peer)])
    for row in measured[ours[0]]:
        ratios = [measured[name][row] / measured[peer][row] for peer in peers for name in ours]
        report.add(row, *(figures[row] for figures in measured.values()), *ratios)
    report.show()
    save(options.json, [report])
    if not has_peer:
        print("\nKUBEBUILDER_ASSETS is not set: kube-apiserver was not measured.")


if __name__ == "__main__":
    main()
