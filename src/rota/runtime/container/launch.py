"""Executes an engine's program, with an environment file that only it can read. `environment` makes its arguments.

    python -I -S launch.py PROGRAM ARGV…

The lines of the file come as values of variables whose names mean nothing to a loader; they are written to a file in
memory, at the descriptor that the arguments name. Only cheap parts of the standard library: it runs at every start.
"""

import os
import sys

PACKED = "ROTA_ENV_"
DESCRIPTOR = 9


def main() -> None:
    lines = [os.environb.pop(os.fsencode(name)) for name in list(os.environ) if name.startswith(PACKED)]
    file = os.memfd_create("environment")
    with open(file, "wb", closefd=False) as writer:
        writer.write(b"".join(line + b"\n" for line in lines))
    os.dup2(file, DESCRIPTOR)
    if file != DESCRIPTOR:
        os.close(file)
    os.execv(sys.argv[1], sys.argv[1:])


if __name__ == "__main__":
    main()
