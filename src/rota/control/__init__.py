"""The controllers, one module for each kind: each brings the objects of its kind to what they ask for.

Promises: a controller decides from the present objects, by a pure planner, and writes with a precondition or under a
deterministic name; so a repeated or late action has no second effect. The status of a kind is written by its own
module and, with each hold that begins or ends, by the holds of tasks and claims.

Never: polls objects (a spawner polls what is outside, such as an issue tracker), keeps state that cannot be read again
from objects and runners, dials what a tenant wrote.
"""
