"""Makers, which make instances real: one interface, and one module for each place.

Promises (`interface.py`; `tests/control/making/` holds every maker to them):
- to make twice makes once, also when another process does it the second time;
- what has ended stays ended until a caller orders a start, unless the maker starts it again by itself and says so;
- every change is reported, so that nobody polls;
- an end is reported when nothing of the instance is alive any more, never before.

Never: decides whether an instance should run, when it is started again, or who has it: the Instance controller does.
Never shows the value of a Secret in what it reports.
"""
