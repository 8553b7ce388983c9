/* The agent of a box: it runs commands for a runner that is outside.
 *
 *     agent                                          the runner is at the other end of standard input
 *     agent --connect SOCKET --runner UID            the runner listens at a socket, and has this uid
 *     …  --empty FOLDER … --empty-ipc                between two runners, remove what is there, and System V's objects
 *     …  --as-child                                  for tests: not as the first process of a namespace
 *     agent --install FILE                           copy this program to a file, and end
 *
 * README.md has the protocol, and what it holds against whoever runs beside it. */

#include <errno.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "agent.h"

enum {
    OK = 0,
    NOT_CLEARED = 1,
    CHANGED = 3, /* what commands inherit: only a new process has it as it was */
    USAGE = 64,
    KEPT_ROOM_BYTES = 65536, /* of the room for messages, which is given back after a longer one */
    CONNECT_PAUSE_MS_MAX = 320,
    COPIED_BYTES = 65536,
    PAGE_BYTES = 4096,
};

struct options {
    const char *socket, *install;
    long runner;
    bool is_child, empties_ipc;
    const char *emptied[EMPTIED_MAX];
    int emptied_count;
};

static _Alignas(PAGE_BYTES) char frame[LENGTH_BYTES + MESSAGE_BYTES_MAX];
static size_t frame_had;
static int descriptors[DESCRIPTORS_MAX], descriptors_had;
static struct message message;
static int signals, own_pidfd = -1;
static bool connects, must_stop;
static char key[KEY_BYTES_MAX + 1];

#if defined(__SANITIZE_ADDRESS__)
/* Nothing is allocated, and a leak could not be looked for in a process that cannot be traced. */
const char *__asan_default_options(void);
const char *__asan_default_options(void) {
    return "detect_leaks=0:abort_on_error=1";
}
#endif

long long now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000LL + now.tv_nsec / 1000000;
}

void note(const char *text, const char *more) {
    dprintf(STDERR_FILENO, "rota agent: %s%s\n", text, more);
}

/* Descriptors 0 to 2 are there, and commands inherit no other. */
static void settle_descriptors(void) {
    int nothing;
    while ((nothing = open("/dev/null", O_RDWR | O_CLOEXEC)) >= 0 && nothing <= STDERR_FILENO)
        if (fcntl(nothing, F_SETFD, 0) != 0)
            exit(USAGE);
    if (nothing >= 0)
        close(nothing);
    if (syscall(SYS_close_range, STDERR_FILENO + 1, ~0U, CLOSE_RANGE_CLOEXEC) == 0)
        return;
    for (int descriptor = STDERR_FILENO + 1; descriptor < sysconf(_SC_OPEN_MAX); descriptor++)
        fcntl(descriptor, F_SETFD, FD_CLOEXEC);
}

static void take_signals(void) {
    struct signalfd_siginfo had[16];
    ssize_t length = read(signals, had, sizeof had);
    for (ssize_t at = 0; at < length / (ssize_t)sizeof *had; at++) {
        /* Who runs in the namespace has a number there, and is nobody to stop it. */
        if (had[at].ssi_signo == SIGTERM && (had[at].ssi_pid == 0 || getpid() != FIRST))
            must_stop = true;
    }
}

static void close_descriptors(void) {
    while (descriptors_had > 0)
        close(descriptors[--descriptors_had]);
}

/* Do what a message says. False: it says nothing that can be done, and the connection is over. */
static bool carry_out(void) {
    if ((message.what == RUN) != (descriptors_had == DESCRIPTORS_MAX) || (message.what != RUN && descriptors_had > 0)) {
        note("a message has not the descriptors that it needs", "");
        return false;
    }
    switch (message.what) {
    case RUN:
        commands_start(&message, descriptors);
        return true;
    case SIGNAL:
        commands_signal(message.id, message.number);
        return true;
    case CLEAR: {
        commands_mark_kept(message.but, message.kept);
        /* Everything in /proc is the box's only if it has a namespace of its own, which begins here or right above. */
        unsigned left = clear(message.alone && (getpid() == FIRST || getppid() == FIRST), message.kept > 0);
        commands_report();
        if (!answers_send() || !answers_have_room())
            return false;
        answer_cleared(left, connects && is_changed());
        return true;
    }
    case KEEP:
        if (!connects)
            return false;
        memset(key, 0, sizeof key);
        memcpy(key, message.key, strlen(message.key));
        answer_kept();
        return true;
    case END:
        commands_mark_kept(NULL, 0);
        exit(clear(getpid() == FIRST, false) == 0 ? message.number : NOT_CLEARED);
    }
    return false;
}

static size_t frame_length(void) {
    const unsigned char *byte = (const unsigned char *)frame;
    return (size_t)byte[0] << 24 | (size_t)byte[1] << 16 | (size_t)byte[2] << 8 | byte[3];
}

/* False: there were more than a message can have. */
static bool keep_descriptors(struct msghdr *header) {
    bool were_all = !(header->msg_flags & MSG_CTRUNC);
    for (struct cmsghdr *one = CMSG_FIRSTHDR(header); one != NULL; one = CMSG_NXTHDR(header, one)) {
        if (one->cmsg_level != SOL_SOCKET || one->cmsg_type != SCM_RIGHTS)
            continue;
        size_t count = (one->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t at = 0; at < count; at++) {
            int descriptor;
            memcpy(&descriptor, CMSG_DATA(one) + at * sizeof descriptor, sizeof descriptor);
            if (descriptors_had < DESCRIPTORS_MAX) {
                descriptors[descriptors_had++] = descriptor;
            } else {
                close(descriptor);
                were_all = false;
            }
        }
    }
    return were_all;
}

/* Read of one message what is there of it, and do what it says when it is whole. False: the connection is over. */
static bool take(int control) {
    size_t wanted = frame_had < LENGTH_BYTES ? LENGTH_BYTES : LENGTH_BYTES + frame_length();
    struct iovec part = {.iov_base = frame + frame_had, .iov_len = wanted - frame_had};
    union {
        struct cmsghdr align;
        char room[CMSG_SPACE(sizeof(int) * DESCRIPTORS_MAX)];
    } extra;
    struct msghdr header = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = &extra, .msg_controllen = sizeof extra.room};
    ssize_t length = recvmsg(control, &header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (length < 0)
        return errno == EAGAIN || errno == EINTR;
    if (!keep_descriptors(&header) || length == 0)
        return false;
    frame_had += (size_t)length;
    if (frame_had < LENGTH_BYTES)
        return true;
    size_t size = frame_length();
    if (size > MESSAGE_BYTES_MAX || size == 0) {
        note("a message is beyond the bound, or empty", "");
        return false;
    }
    if (frame_had < LENGTH_BYTES + size)
        return true;
    const char *wrong = message_read(&message, frame + LENGTH_BYTES, size);
    if (wrong != NULL)
        note("a message cannot be read: ", wrong);
    bool goes_on = wrong == NULL && carry_out();
    close_descriptors();
    frame_had = 0;
    /* The memory is the container's. */
    if (size > KEPT_ROOM_BYTES)
        madvise(frame, sizeof frame - sizeof frame % PAGE_BYTES, MADV_DONTNEED);
    return goes_on;
}

/* Serve the runner until the connection is over. */
static void serve(int control) {
    bool is_stopping = false;
    answers_begin(control);
    frame_had = 0;
    answer_ready(getpid(), getuid(), key[0] != '\0' ? key : NULL, own_pidfd);
    for (;;) {
        bool is_more = commands_reap();
        commands_report();
        if (must_stop && !is_stopping && answers_have_room()) {
            is_stopping = true;
            answer_stopping();
        }
        if (!answers_send())
            break;
        bool has_room = answers_have_room();
        struct pollfd news[] = {
            {.fd = control, .events = (short)((has_room ? POLLIN : 0) | (answers_waiting() ? POLLOUT : 0))},
            {.fd = signals, .events = POLLIN},
        };
        if (poll(news, 2, is_more ? 0 : -1) < 0 && errno != EINTR)
            break;
        if (news[1].revents != 0)
            take_signals();
        if (news[0].revents & (POLLERR | POLLHUP) && !has_room)
            break;
        if (news[0].revents & (POLLIN | POLLERR | POLLHUP) && has_room && !take(control))
            break;
    }
    close_descriptors();
}

/* Connect to the runner, however long that takes. Nothing else can be at the socket: its uid is the runner's alone. */
static int reach(const struct options *options) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int pause = CONNECT_PAUSE_MS;
    memcpy(address.sun_path, options->socket, strlen(options->socket) + 1);
    for (;;) {
        struct ucred peer = {.uid = (uid_t)-1};
        socklen_t length = sizeof peer;
        int control = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        if (control >= 0 && connect(control, (struct sockaddr *)&address, sizeof address) == 0) {
            if (getsockopt(control, SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0 &&
                (long)peer.uid == options->runner)
                return control;
            note("who listens is not the runner", "");
        }
        if (control >= 0)
            close(control);
        struct pollfd news = {.fd = signals, .events = POLLIN};
        if (poll(&news, 1, pause) > 0)
            take_signals();
        while (commands_reap())
            ;
        if (must_stop)
            exit(OK);
        pause = pause * 2 < CONNECT_PAUSE_MS_MAX ? pause * 2 : CONNECT_PAUSE_MS_MAX;
    }
}

/* One runner after the other. Nothing of one is left when the next is connected. */
_Noreturn static void serve_runners(const struct options *options) {
    for (;;) {
        int control = reach(options);
        serve(control);
        close(control);
        commands_mark_kept(NULL, 0);
        if (clear(getpid() == FIRST, false) != 0) {
            note("something cannot be ended", "");
            exit(NOT_CLEARED);
        }
        commands_forget();
        for (int at = 0; at < options->emptied_count; at++) {
            if (!empty_folder(options->emptied[at])) {
                note("it cannot be emptied: ", options->emptied[at]);
                exit(NOT_CLEARED);
            }
        }
        if (options->empties_ipc && !empty_ipc()) {
            note("shared memory, queues or semaphores cannot be removed", "");
            exit(NOT_CLEARED);
        }
        if (is_changed()) {
            note("its limits were changed", "");
            exit(CHANGED);
        }
    }
}

static int install(const char *path) {
    char new[PAGE_BYTES], *part = frame;
    int from = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    if (from < 0 || snprintf(new, sizeof new, "%s.new", path) >= (int)sizeof new)
        return USAGE;
    unlink(new);
    int to = open(new, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0700);
    ssize_t length = to < 0 ? -1 : 1;
    while (length > 0 && (length = read(from, part, COPIED_BYTES)) > 0)
        for (ssize_t at = 0, written; at < length; at += written)
            if ((written = write(to, part + at, (size_t)(length - at))) < 0)
                at = length = -1;
    if (length < 0 || fchmod(to, 0555) != 0 || close(to) != 0 || rename(new, path) != 0) {
        note("it cannot be installed: ", strerror(errno));
        return NOT_CLEARED;
    }
    return OK;
}

static bool read_options(int count, char **arguments, struct options *options) {
    *options = (struct options){.runner = -1};
    for (int at = 1; at < count; at++) {
        bool has_value = at + 1 < count;
        if (strcmp(arguments[at], "--connect") == 0 && has_value) {
            options->socket = arguments[++at];
        } else if (strcmp(arguments[at], "--runner") == 0 && has_value) {
            char *end;
            options->runner = strtol(arguments[++at], &end, 10);
            if (*end != '\0' || end == arguments[at] || options->runner < 0)
                return false;
        } else if (strcmp(arguments[at], "--as-child") == 0) {
            options->is_child = true;
        } else if (strcmp(arguments[at], "--empty-ipc") == 0) {
            options->empties_ipc = true;
        } else if (strcmp(arguments[at], "--empty") == 0 && has_value && options->emptied_count < EMPTIED_MAX) {
            options->emptied[options->emptied_count++] = arguments[++at];
        } else if (strcmp(arguments[at], "--install") == 0 && has_value) {
            options->install = arguments[++at];
        } else {
            return false;
        }
    }
    if (options->socket == NULL)
        return options->runner < 0 && !options->is_child && !options->empties_ipc && options->emptied_count == 0;
    return options->runner >= 0 && options->install == NULL &&
           strlen(options->socket) < sizeof ((struct sockaddr_un *)0)->sun_path;
}

int main(int count, char **arguments, char **environment) {
    struct options options;
    sigset_t taken;
    settle_descriptors();
    if (!read_options(count, arguments, &options)) {
        note("it takes nothing, --install FILE, or --connect SOCKET --runner UID [--empty FOLDER …] [--empty-ipc]", "");
        return USAGE;
    }
    if (options.install != NULL)
        return install(options.install);
    connects = options.socket != NULL;
    if (connects && !options.is_child && (getpid() != FIRST || (long)getuid() == options.runner)) {
        /* What has its uid could end it, or speak as the runner. */
        note("it has to be the first process of its container, with another uid than the runner", "");
        return USAGE;
    }
    /* What commands leave behind comes to it. They have its uid: none may trace it, or take its socket from it. */
    if (prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0 || prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) != 0 ||
        (connects && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)) {
        note("this kernel does not keep it apart from what it starts", "");
        return USAGE;
    }
    sigemptyset(&taken);
    sigaddset(&taken, SIGCHLD);
    if (connects)
        sigaddset(&taken, SIGTERM);
    signal(SIGCHLD, SIG_DFL);
    sigprocmask(SIG_BLOCK, &taken, NULL);
    signals = signalfd(-1, &taken, SFD_CLOEXEC | SFD_NONBLOCK);
    commands_begin(signals, environment);
    clearing_begin();
    if (connects) {
        own_pidfd = (int)syscall(SYS_pidfd_open, getpid(), 0);
        serve_runners(&options);
    }
    int control = fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1), nothing = open("/dev/null", O_RDONLY);
    if (control < 0 || signals < 0 || nothing < 0 || dup2(nothing, STDIN_FILENO) < 0)
        return USAGE;
    close(nothing);
    serve(control);
    return OK;
}
