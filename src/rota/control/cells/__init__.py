"""Hub and cells: one control plane decides, others run what it decides for them.

The hub binds a deployment to a cell by a copy in the cell's namespace. The cell pulls that copy, runs it with its own
controllers, and reports. Everything that is known at the hub of what runs elsewhere is from such a report.
"""
