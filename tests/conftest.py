"""What holds for the whole suite."""

from __future__ import annotations

import signal

from hypothesis import settings

from tests.amount import LONG

# What is drawn is the same in every run, so that a change is judged by what it changes. `make long` draws anew.
settings.register_profile("same", derandomize=True)
settings.register_profile("anew")
settings.load_profile("anew" if LONG else "same")

# A run in the background of a script is started with interrupts ignored, and so is everything that it starts. Tests of
# Ctrl-C would then wait for ever.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
