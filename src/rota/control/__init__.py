"""The controllers, one module for each kind: each brings the objects of its kind to what they ask for.

- *From what is there.* A controller decides from the present objects, by a pure planner, and keeps no state that cannot
  be read again from objects and runners.
- *No second effect.* It writes with a precondition or under a deterministic name, so a repeated or late action has no
  second effect.
- *One controller a kind.* It alone writes the status of its kind, except for the beginnings and ends of holds, which
  `holds/`, `tasks/` and `claims/` write.
- *One builder of a task's states.* They are built in `tasks.lifecycle`; of a call that is over in `functions.recording`
  and `functions.moulds`, and of what is only simulated in `simulation`.
- *Nothing is polled* except what is outside of Rota, such as the issue tracker of a spawner.

Never: dials an address because a tenant wrote it.
"""
