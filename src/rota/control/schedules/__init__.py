"""Schedules: when cron ticks, which ticks become Tasks, and what is said of that.

Promises: one Task for each tick, for ever, whatever dies or is repeated meanwhile; ticks as Debian's cron has them,
also where the clocks change; a decision depends on a schedule, its Tasks and the time alone.

Never: fires a tick twice, fires one that is older than the newest that was fired, walks through more ticks than a
named bound allows.
"""
