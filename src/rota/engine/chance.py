"""Chance: what would come at once is spread a little. A simulation puts a source of its own here, to be repeatable."""

from __future__ import annotations

import random

uniform = random.uniform
