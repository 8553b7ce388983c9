"""The keeper: one small process per home that owns every child of the process runtime, and outlives the server.

- *Owned.* A child has its own session, its own group of processes, exactly the environment it was given, and no file of
  the keeper's but its three streams. All that it starts, daemons too, is of its tree.
- *Ended for certain.* A child has exited when its whole tree has: `stop` answers when nothing of it is alive.
- *Nothing outlives the keeper.* When it dies, its children die; what they left behind is ended by the next keeper,
  before that one does anything else.
- *No exit is lost.* Starts and exits are on disk before anybody hears of them, until they are forgotten on purpose.
- *Once.* A start is named by its key and its run: repeating it has no second effect, and a late stop of an earlier run
  has none either.
- *Not for ever.* Without a server for a while, it stops everything and ends.
- *Bounded.* Children, connections, lines, backlogs, records and logs each have a limit with a name.

Never: restarts anything, reads what a child writes but to store it, writes an environment to disk, believes a pid.

How a tree is held, the first of these that the host allows:

- `cgroup`: a cgroup2 group per child, ended with `cgroup.kill`.
- `namespace`: a PID namespace per child, whose end the kernel makes the end of all in it.
- `sweep`: a minder per child, which inherits the orphans of the tree and ends them by looking through /proc.

To be read in this order: `protocol`; `process`, what it is asked; `children`, what becomes of that; `spawn`, `program`
and `minder`, from a fork to a program; the rest as it comes up. The server's side is `client`, with `connection` and
`messages`. All but that side uses the standard library only, so that the keeper is up in a few milliseconds and an
upgrade of Rota's libraries cannot disturb it.
"""
