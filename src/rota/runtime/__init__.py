"""The runtime: makes Instances real on this host, as processes, sandboxes and containers.

- *One owner.* Exactly one keeper owns all that runs in a home. A run ends with everything that it started.
- *Found again.* A server that was away finds what runs, and the exits that happened meanwhile.
- *Started once.* A run is named by its instance, its container and a number: a repeated start has no effect.
- *Nothing is pretended.* A limit that the host cannot hold is reported with the run; an isolation that it cannot make
  is refused.
- *Bounded.* Disk, logs, archives and caches have limits with names, also for each tenant.

Never: decides what should run, restarts anything by itself, trusts a pid without its start time.

Read `interface` first, then `local`, which implements it. `keeper` owns the processes, `sandbox`, `container` and
`egress` confine them; `runner` and `workspace` serve workers, `code` functions; `probes` and `files` use what runs.
"""
