"""The source of jitter. A simulation replaces it by a seeded one."""

from __future__ import annotations

import random

uniform = random.uniform
