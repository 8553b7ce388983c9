"""What holds for the whole suite."""

from __future__ import annotations

import signal

# A run in the background of a script is started with interrupts ignored, and so is everything that it starts. Tests of
# Ctrl-C would then wait for ever.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
