"""The last step into a sandbox: runs inside, as the instance, and becomes the instance's command.

    python -I -S stage.py KEPT ARGV…

It closes every descriptor but the standard ones and those named in KEPT (a directory of the host that slipped through
would be a way out), unpacks the environment, and executes. The standard library's cheapest parts only: it is run once
for every start.
"""

import errno
import os
import sys

PACKED = b"ROTA_ENV_"
STANDARD = 3
NOT_FOUND, NOT_RUNNABLE = 127, 126


def main() -> None:
    kept = {int(number) for number in sys.argv[1].split(",") if number}
    for number in map(int, os.listdir("/proc/self/fd")):
        if number in kept:
            os.set_inheritable(number, True)
        elif number >= STANDARD:
            # closerange, for it does not mind that the listing's own is closed already.
            os.closerange(number, number + 1)
    packed = ((int(name[len(PACKED) :]), value) for name, value in os.environb.items() if name.startswith(PACKED))
    environment = dict(value.split(b"=", 1) for _, value in sorted(packed))
    argv = sys.argv[2:]
    try:
        os.execvpe(argv[0], argv, environment)
    except OSError as error:
        is_missing = isinstance(error, FileNotFoundError) or _is_nowhere(argv[0], environment)
        why = os.strerror(errno.ENOENT) if is_missing else error.strerror
        os.write(2, os.fsencode(f"cannot run {argv[0]}: {why}\n"))
        sys.exit(NOT_FOUND if is_missing else NOT_RUNNABLE)


def _is_nowhere(name: str, environment: dict[bytes, bytes]) -> bool:
    """Report whether no folder of the path has a program. As a shell does, pass over one that may not be searched."""
    places = os.fsdecode(environment.get(b"PATH", os.fsencode(os.defpath))).split(os.pathsep)
    return "/" not in name and not any(os.path.lexists(os.path.join(place, name)) for place in places)


if __name__ == "__main__":
    main()
