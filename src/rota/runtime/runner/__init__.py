"""The runner: one small, trusted process for each worker, which prepares its tree and runs commands in its box.

It runs on the host, outside the box, as the user that runs Rota. Inside the box an agent starts commands for it. Its
stream to the gateway is authenticated as its own instance.

- *Run once.* A job that has begun is never begun again, also after kill -9 of the runner: it has exactly one outcome.
- *No outcome is lost.* An outcome is on disk before it is sent, and kept until the server acknowledges it.
- *As new.* Between two holders every process of the first is ended. Unless the reset policy is Keep, the tree is made
  again from nothing, also if the runner was killed meanwhile.
- *Without the server* it goes on working, and sends all that happened when the server is back.
- *The agent is not trusted.* Its reports are checked from outside the box; an agent that sends rubbish, or is stopped,
  is given up together with its box.
- *Bounded.* Queued jobs, outcomes, calls, messages and logs each have a limit with a name.

Never: writes objects, keeps a credential longer than it is needed.

Read `messages` first, which is the protocol with the server; then `worker`. A job goes through `jobqueue`, `executor`
and `attempt`, a call through `function_calls` and an invoker. Files named `…_program`, and `agent`, run inside the box.
"""
