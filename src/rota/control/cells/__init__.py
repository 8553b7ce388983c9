"""Hub and cells: the hub places workloads on cells, which run them with their own controllers and report.

The hub binds a deployment to a cell by a copy in the cell's namespace. The cell mirrors that copy into its own store.

- *Autonomy.* A cell needs its hub for nothing that it runs already; it reports what happened when the hub is back.
- *Eventual agreement.* After any faults hub and cell know the same of each deployment: digests find what is missing.
- *No double.* What moves when its cell is lost runs nowhere else while the lost cell may still run it.
- *Own cell only.* A cell reads only its own namespace at the hub, and its report is refused if it concerns another's.

Never: deletes anything because it is missing from a list or a report; lets the hub dial a cell.
"""
