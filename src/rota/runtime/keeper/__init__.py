"""The keeper: one small process per home that owns every child of the process runtime, and outlives the server.

- *Owned.* A child has its own session, its own group of processes, exactly the environment it was given, and no file of
  the keeper's but its three streams. All that it starts, daemons too, is of its tree.
- *Verified end.* A child has exited when its whole process tree has: `stop` answers when no process of it is alive.
- *Nothing outlives the keeper.* When it dies, its children die. The next keeper ends what they left behind before it
  does anything else.
- *No exit is lost.* Starts and exits are on disk before a client is notified, and stay there until a client forgets
  them.
- *Idempotent.* A start is identified by its key and its run: a repeated start has no effect, and neither has a late
  stop of an earlier run.
- *Not for ever.* After `ORPHAN_SECONDS` without a server it stops everything and exits.
- *Closed.* Addresses can be closed to a child, where the kernel can do that; its record says whether they are.
- *Bounded.* Children, connections, lines, backlogs, records and logs each have a limit with a name.

Never: restarts a child, interprets its output, writes an environment to disk, trusts a pid without its start time.

A process tree is held together by the first of these that the host allows:

- `cgroup`: a cgroup2 group per child, ended with `cgroup.kill`.
- `namespace`: a PID namespace per child; the kernel kills all of it with its process 1.
- `sweep`: a minder per child, which inherits the orphans of the tree, finds them in /proc and kills them.

Read `protocol` first, then `process` (requests), `children` (their effects), and `spawn`, `program` and `minder` (from
a fork to a program). The server's side is `client`, with `connection`, `messages` and `leases`. The keeper's own side
uses the standard library only, so that it starts in a few milliseconds and no upgrade of Rota's libraries can break it.
"""
