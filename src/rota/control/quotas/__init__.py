"""Quotas: the share of a namespace's budget that each owner of instances holds.

- *Never over.* Grants fit into the budget, also when two controllers decide at the same time.
- *Nothing is ended.* A budget that was lowered ends nothing that runs; it grants nothing until enough is free.
- *In order.* The owner that has waited longest is granted first. A demand larger than the whole budget is skipped.
- *Crash-safe.* The ledger is the status of the Quota. Claims and gates follow from it, also after a restart.

Never: starts or ends an instance, charges a cell for an instance that its hub has charged.
"""
