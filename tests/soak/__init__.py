"""A real server under mixed load for minutes or hours: whatever leaves its store leaves its memory, too.

`make soak MINUTES=60` runs it; `test_soak.py` is the short form that belongs to the suite.
"""
