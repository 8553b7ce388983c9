"""The last step into a sandbox: runs inside, and executes the instance's command.

    python -I -S stage.py UID FILTER KEPT PROXY ARGV…

UID is the uid of the command. If this process is root, as Rota is then, it first enters a user namespace in which there
is no other uid, becomes that uid, drops every capability, and installs the filter of system calls, which it reads from
the descriptor FILTER. Otherwise bubblewrap has done all that, and FILTER is empty.

Then it checks itself. Unless it is confined as the sandbox promises, it exits with 125, and runs nothing of the
instance. If PROXY is DESCRIPTOR:PORT, the sandbox's proxy is at the descriptor's other end, and gets a socket that
listens at this port in here. Last, it closes every descriptor but the standard ones and those named in KEPT (a
directory of the host that slipped through would be a way out), unpacks the environment, and executes the command. Only
cheap parts of the standard library: it runs at every start.
"""

import ctypes
import errno
import os
import sys

PACKED = b"ROTA_ENV_"
STANDARD = 3
PROXY_BACKLOG = 64
NOT_CONFINED, NOT_RUNNABLE, NOT_FOUND = 125, 126, 127
CLONE_NEWUSER = 0x10000000
PR_SET_DUMPABLE = 4
PR_CAPBSET_DROP, PR_SET_SECCOMP, PR_SET_NO_NEW_PRIVS, PR_CAP_AMBIENT = 24, 22, 38, 47
PR_CAP_AMBIENT_CLEAR_ALL = 4
SECCOMP_MODE_FILTER = 2
CAPABILITY_VERSION = 0x20080522
CAPABILITIES_MAX = 64
CAP_SETGID, CAP_SETUID = 6, 7
INSTRUCTION_BYTES = 8
EVERY_UID = ["0", "0", "4294967295"]
"""The uid map of a process that is in no user namespace of its own."""


class NotConfined(Exception):  # noqa: N818 - named for what is the case
    """The process is not confined as the sandbox promises."""


def main() -> None:
    uid, filter_, kept_, proxy, *argv = sys.argv[1:]
    try:
        if filter_:
            with open(int(filter_), "rb") as file:
                code = file.read()
            if os.geteuid() == 0:
                enter_namespace(int(uid))
            give_up(code)
        verify(int(uid))
        if proxy:
            hand_out(*map(int, proxy.split(":")))
    except (OSError, ValueError, NotConfined) as error:
        os.write(2, os.fsencode(f"the sandbox could not be closed, so nothing is run in it: {error}\n"))
        sys.exit(NOT_CONFINED)
    kept = {int(number) for number in kept_.split(",") if number}
    for number in map(int, os.listdir("/proc/self/fd")):
        if number in kept:
            os.set_inheritable(number, True)
        elif number >= STANDARD:
            # closerange, since the descriptor of the listing itself is closed already.
            os.closerange(number, number + 1)
    packed = ((int(name[len(PACKED) :]), value) for name, value in os.environb.items() if name.startswith(PACKED))
    environment = dict(value.split(b"=", 1) for _, value in sorted(packed))
    try:
        os.execvpe(argv[0], argv, environment)
    except OSError as error:
        is_missing = isinstance(error, FileNotFoundError) or _is_nowhere(argv[0], environment)
        why = os.strerror(errno.ENOENT) if is_missing else error.strerror
        os.write(2, os.fsencode(f"cannot run {argv[0]}: {why}\n"))
        sys.exit(NOT_FOUND if is_missing else NOT_RUNNABLE)


def enter_namespace(uid: int) -> None:
    """Enter a new user namespace in which this uid is the only one.

    The uid makes the namespace, not root: the kernel counts some resources (inotify, message queues, pending signals)
    for the maker of a namespace as well, and all sandboxes would share root's limits.
    """
    ready, begin = os.pipe()
    parent, child = os.getpid(), os.fork()
    if child == 0:
        # Only a process outside, which can still change its uid, may write the maps.
        os.close(begin)
        code = 1
        try:
            if os.read(ready, 1):
                os.seteuid(uid)
                _have(CAP_SETGID, CAP_SETUID)
                for name in ("uid_map", "gid_map"):
                    with open(f"/proc/{parent}/{name}", "w") as file:
                        file.write(f"{uid} {uid} 1")
                code = 0
        finally:
            os._exit(code)
    os.close(ready)
    try:
        os.seteuid(uid)
        _must(_libc().unshare(CLONE_NEWUSER), "a user namespace cannot be made")
        # Otherwise its files in /proc belong to root. No other process is in here yet that could trace it.
        _must(_libc().prctl(PR_SET_DUMPABLE, 1, 0, 0, 0), "its maps cannot be written")
        os.write(begin, b"x")
    finally:
        os.close(begin)
        _, status = os.waitpid(child, 0)
    if status != 0:
        raise NotConfined("the user namespace was given no uid")
    become(uid)


def become(uid: int) -> None:
    """Change to a uid and the gid of the same number, without supplementary groups."""
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)


def hide() -> None:
    """Prevent processes of the same uid from tracing this one, until it executes a program."""
    _must(_libc().prctl(PR_SET_DUMPABLE, 0, 0, 0, 0), "tracing cannot be ruled out")


def give_up(filter_: bytes) -> None:
    """Install a filter of system calls, and drop every capability for good.

    The filter comes first: others can trace a process without capabilities, so it must be filtered as they are by then.
    """
    libc = _libc()
    _must(libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "new privileges cannot be ruled out")
    code = ctypes.create_string_buffer(filter_, len(filter_))
    program = _SockFilter(len(filter_) // INSTRUCTION_BYTES, ctypes.cast(code, ctypes.c_void_p))
    _must(libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.byref(program), 0, 0), "the filter is refused")
    for capability in range(CAPABILITIES_MAX):
        libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0)
    libc.prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)
    _have()


def _have(*capabilities: int) -> None:
    """Keep these capabilities and drop all others."""
    bits = sum(1 << capability for capability in capabilities)
    header = (ctypes.c_uint32 * 2)(CAPABILITY_VERSION, 0)
    # Effective, permitted, inheritable; then the same for capabilities beyond 31.
    _must(_libc().capset(header, (ctypes.c_uint32 * 6)(bits, bits)), "capabilities cannot be given up")


def verify(uid: int) -> None:
    """Raise NotConfined unless this process has exactly this uid, and no way to gain more rights."""
    with open("/proc/self/status") as file:
        status = dict(line.rstrip("\n").split(":\t", 1) for line in file if ":\t" in line)
    gid = status.get("Gid", "").split()[:1]
    wanted = {"Uid": [str(uid)] * 4, "Gid": gid * 4, "NoNewPrivs": ["1"], "Seccomp": [str(SECCOMP_MODE_FILTER)]}
    for name, value in wanted.items():
        if status.get(name, "").split() != value or value[0] == "0":
            raise NotConfined(f"{name} is {status.get(name, 'unknown')!r} where it must be {' '.join(value)}")
    for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
        if int(status.get(name, "1"), 16):
            raise NotConfined(f"{name} is {status.get(name, 'unknown')} where it must be nothing")
    with open("/proc/self/uid_map") as file:
        if file.read().split() == EVERY_UID:
            raise NotConfined("it is in no user namespace of its own")


def hand_out(descriptor: int, port: int) -> None:
    """Pass a socket that listens in this network to the proxy outside. Return when the proxy has received it."""
    import _socket  # The module `socket` takes as long to load as all else here.

    listener = _socket.socket(_socket.AF_INET, _socket.SOCK_STREAM)
    listener.bind(("127.0.0.1", port))
    listener.listen(PROXY_BACKLOG)
    way = _socket.socket(fileno=descriptor)
    number = listener.fileno().to_bytes(4, sys.byteorder)
    way.sendmsg([b"x"], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, number)])
    if not way.recv(1):
        raise NotConfined("its proxy has ended")
    way.close()
    listener.close()


class _SockFilter(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("code", ctypes.c_void_p))


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _must(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def _is_nowhere(name: str, environment: dict[bytes, bytes]) -> bool:
    """Report whether no folder of PATH has a program. Like a shell, skip folders that may not be searched."""
    places = os.fsdecode(environment.get(b"PATH", os.fsencode(os.defpath))).split(os.pathsep)
    return "/" not in name and not any(os.path.lexists(os.path.join(place, name)) for place in places)


if __name__ == "__main__":
    main()
