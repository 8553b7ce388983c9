"""Schedules: the ticks of a cron, the Task of each tick, and the status of the schedule.

- *At most one Task a tick.* No tick fires twice, whatever is killed, repeated, deleted or run in two processes.
- *Debian's cron.* Ticks are those that Debian's cron has, also where the clocks change.
- *Missed ticks.* They are caught up as `spec.catchUp` says; at most CATCH_UP_TICKS_MAX of them are looked at.
- *In order.* No tick fires that is older than the newest that was fired, also after the clock was set back.

Never: decides by anything but a schedule, its Tasks and the time; fires a tick of a time when the schedule was paused
or had another cron.
"""
