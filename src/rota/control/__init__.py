"""The controllers, a module a kind: each brings the objects of its kind to what they ask for.

Promises: a controller decides from what is there now, by a pure planner, and writes with a precondition or under a
deterministic name; so a repeated or late action has no second effect. The status of a kind is written by its own
module and, where an instance is held, by the holds of tasks or claims, which write with the hold that it begins or
ends there.

Never: polls objects (a spawner polls what is outside, such as an issue tracker), keeps state that cannot be read again
from objects and runners, dials what a tenant wrote.
"""
