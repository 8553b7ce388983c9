"""The controllers, a module a kind: each brings the objects of its kind to what they ask for.

Promises: a controller decides from what is there now, by a pure planner, and writes with a precondition or under a
deterministic name; so a repeated or late action has no second effect. Each kind's status has one writer.

Never: polls, keeps state that is not in the objects, dials what a tenant wrote.
"""
