"""The bounds of files and trees. Standard library only: it runs inside of instances."""

MEBIBYTE = 1024 * 1024
FILE_BYTES_MAX = 1024 * MEBIBYTE
"""The largest file that is read or written."""
ARCHIVE_BYTES_MAX = 1024 * MEBIBYTE
"""The most bytes of all files of a tree together."""
ARCHIVE_MEMBERS_MAX = 100_000
ARCHIVE_STREAM_BYTES_MAX = ARCHIVE_BYTES_MAX + ARCHIVE_MEMBERS_MAX * 2048
"""The longest tar of a tree within the bounds: its bytes, and the headers of its members."""
ENTRIES_MAX = 10_000
"""Bound on the entries of a listing. A longer listing is truncated and marked so, as beyond `ANSWER_BYTES_MAX`."""
ANSWER_BYTES_MAX = 4 * MEBIBYTE
"""The longest answer on a folder. The answer is not trusted: a program of the instance may have written it."""
ENTRY_BYTES_MAX = 64 * 1024
"""The longest entry of a listing: each byte of a name and a target may take six, as JSON."""
MESSAGE_CHARACTERS_MAX = 4096
"""The longest message of a failure."""
PATH_BYTES_MAX = 4096
LINKS_MAX = 40
"""The most links on the way to one file, as in the kernel."""
DEPTH_MAX = 200
"""The most folders within each other in a tree: each holds a descriptor."""
PIECE_BYTES = 64 * 1024
EXTENDED_BYTES_MAX = 64 * 1024
"""The longest extended header of a member of a tar, which holds long names."""
EXTENDED_LINES_MAX = 64
"""The most lines of an extended header."""
MODE_MASK = 0o777
"""The used bits of a mode. Without setuid and setgid, no written file runs as another user."""
