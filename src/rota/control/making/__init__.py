"""Makers, which make instances real: one interface, and one module for each place.

`tests/control/making/` holds every maker to what `interface.py` promises:

- *Idempotent.* To make twice makes once, also when another process does it the second time.
- *No surprise restarts.* An ended container stays ended until a caller orders a start, unless its maker restarts it by
  itself and reports so.
- *Every change is reported*, so that nobody polls.
- *An end is an end.* It is reported when nothing of the instance is alive any more, never before.

Never: decides whether an instance should run, when it is started again, or who holds it: the Instance controller does.
Never shows the value of a Secret in a report.
"""
