/* Ends processes, and looks that they have ended.
 *
 * Where this is the first process of its namespace, and nothing is to stay, the kernel does both: one `kill(-1)` is sent
 * to all others at one instant, which no fork can get past, and says whether there were any. Otherwise processes are
 * looked for in /proc. Orphans come to this process, and only it takes its dead away: what is not in the list of its
 * children, nor below one of them, is not. */

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "agent.h"

enum {
    PATH_BYTES_MAX = 64,
    STAT_BYTES_MAX = 1024,
    LISTED_BYTES_MAX = 32768,
    CHILDREN_BYTES_MAX = 4096,
    PROCESSORS_MAX = 8192,
    ATTRIBUTES_BYTES = 56, /* of scheduling */
    IOPRIO_WHO_PROCESS = 1,
    ONE_THREAD_LINKS = 3, /* of a folder of threads: its own two, and one for each thread */
};

struct process {
    int pid, parent;
    bool runs;
};

static struct process processes[PROCESSES_MAX];
static size_t found;
static bool lists_children;

static int open_in_proc(const char *format, int pid, int thread, int flags) {
    char path[PATH_BYTES_MAX];
    snprintf(path, sizeof path, format, pid, thread);
    return open(path, O_RDONLY | O_CLOEXEC | flags);
}

static bool is_gone(int error) {
    return error == ENOENT || error == ESRCH;
}

/* The state and the parent of a process. False: there is none, or nothing can be said of it, which `errno` tells. */
static bool look(int pid, char *state, int *parent) {
    char text[STAT_BYTES_MAX];
    int file = open_in_proc("/proc/%d/stat", pid, 0, 0);
    if (file < 0)
        return false;
    ssize_t length = read(file, text, sizeof text - 1);
    int error = errno;
    close(file);
    errno = length == 0 ? ESRCH : error;
    if (length <= 0)
        return false;
    text[length] = '\0';
    /* Its name may have any character in it, but a bracket ends it. */
    char *after = strrchr(text, ')');
    errno = EPROTO;
    return after != NULL && sscanf(after + 1, " %c %d", state, parent) == 2;
}

/* Whether a process is not over. One whose first thread has ended looks as if it were. */
static bool goes_on(int pid, char state) {
    char path[PATH_BYTES_MAX];
    struct stat threads;
    if (state != 'Z' && state != 'X')
        return true;
    snprintf(path, sizeof path, "/proc/%d/task", pid);
    if (stat(path, &threads) != 0)
        return !is_gone(errno);
    return threads.st_nlink > ONE_THREAD_LINKS;
}

/* What nothing can be said of counts as running. */
static bool is_running(int pid) {
    char state;
    int parent;
    if (!look(pid, &state, &parent))
        return !is_gone(errno);
    return goes_on(pid, state);
}

/* Whether a thread has a child for which this holds; what cannot be read has one. */
static bool has_child(int pid, int thread, bool (*holds)(int pid)) {
    int file = open_in_proc("/proc/%d/task/%d/children", pid, thread, 0);
    if (file < 0)
        return !is_gone(errno);
    char text[CHILDREN_BYTES_MAX];
    int number = 0;
    bool has_one = false;
    ssize_t length;
    while (!has_one && (length = read(file, text, sizeof text)) > 0) {
        for (ssize_t at = 0; at < length && !has_one; at++) {
            if (isdigit((unsigned char)text[at])) {
                number = number * 10 + (text[at] - '0');
            } else if (number > 0) {
                has_one = holds(number);
                number = 0;
            }
        }
    }
    if (!has_one && length < 0)
        has_one = !is_gone(errno);
    if (!has_one && number > 0)
        has_one = holds(number);
    close(file);
    return has_one;
}

/* Call with each name in a folder that is a number. False: not all could be read, or a call has returned false. */
static bool each_number(int folder, char *room, size_t bytes, bool (*call)(int number, void *with), void *with) {
    long length;
    while ((length = syscall(SYS_getdents64, folder, room, bytes)) > 0) {
        for (long at = 0; at < length;) {
            struct entry *entry = (struct entry *)(void *)(room + at);
            int number = isdigit((unsigned char)entry->name[0]) ? atoi(entry->name) : 0;
            if (number > 0 && !call(number, with))
                return false;
            at += entry->length;
        }
    }
    return length == 0 || is_gone(errno);
}

static bool has_no_running_child(int thread, void *with) {
    return !has_child(*(int *)with, thread, is_running);
}

static bool has_running_child(int pid) {
    _Alignas(struct entry) char room[CHILDREN_BYTES_MAX];
    int folder = open_in_proc("/proc/%d/task", pid, 0, O_DIRECTORY);
    if (folder < 0)
        return !is_gone(errno);
    bool has_none = each_number(folder, room, sizeof room, has_no_running_child, &pid);
    close(folder);
    return !has_none;
}

static bool is_not_kept(int pid) {
    return !commands_is_kept(pid);
}

static bool add(int pid, void *with) {
    struct process *process = &processes[found];
    char state;
    (void)with;
    if (found == PROCESSES_MAX)
        return false;
    if (look(pid, &state, &process->parent)) {
        process->pid = pid;
        process->runs = goes_on(pid, state);
        found++;
    }
    return true;
}

/* Look at all processes that can be seen. False: there are more. */
static bool look_at_all(void) {
    _Alignas(struct entry) static char room[LISTED_BYTES_MAX];
    int folder = open_in_proc("/proc", 0, 0, O_DIRECTORY);
    found = 0;
    if (folder < 0)
        return false;
    bool was_all = each_number(folder, room, sizeof room, add, NULL);
    close(folder);
    return was_all;
}

static int by_pid(const void *one, const void *other) {
    return ((const struct process *)one)->pid - ((const struct process *)other)->pid;
}

/* Whether a process that was looked at is below this one, by way of such as are alive.
 *
 * The kernel lists processes by their numbers. Where it did not, some would not be found, and nothing would be clear. */
static bool is_below(const struct process *process) {
    int self = getpid();
    /* The list is no picture of one instant: a way in it may be a circle. */
    for (size_t steps = 0; steps < found && process != NULL; steps++) {
        if (process->parent == self)
            return true;
        struct process wanted = {.pid = process->parent};
        process = bsearch(&wanted, processes, found, sizeof *processes, by_pid);
        if (process != NULL && !process->runs)
            return false;
    }
    return false;
}

/* Count what has still to end, and end it if that is wanted. */
static unsigned left(bool alone, bool ends) {
    unsigned count = look_at_all() ? 0 : 1;
    int self = getpid();
    for (size_t at = 0; at < found; at++) {
        struct process *process = &processes[at];
        if (!process->runs || process->pid == self || commands_is_kept(process->pid))
            continue;
        if (alone ? process->pid == FIRST : !is_below(process))
            continue;
        count++;
        /* What is still on its way in may be another's, for a moment. */
        if (ends)
            kill(process->pid, SIGKILL);
    }
    return count;
}

/* Whether nothing is below this process but those that are kept, which have nothing below them.
 *
 * They are looked at first: what leaves them is in the list of children of this process then. */
static bool is_clear(void) {
    int pid, at = 0;
    if (!lists_children)
        return left(false, false) == 0;
    while ((at = commands_next_kept(&pid, at)) >= 0)
        if (has_running_child(pid))
            return false;
    return !has_child(getpid(), getpid(), is_not_kept);
}

/* End everything else in the namespace, of which this is the first process. False: something is left. */
static bool is_cleared_by_kernel(void) {
    return kill(-1, SIGKILL) != 0 && errno == ESRCH;
}

unsigned clear(bool alone, bool keeps) {
    bool is_by_kernel = alone && !keeps && getpid() == FIRST;
    long long deadline = now_ms() + CLEAR_MS_MAX;
    unsigned count = 1;
    commands_reap();
    while (is_by_kernel ? !is_cleared_by_kernel() : !is_clear() || (alone && left(true, false) > 0)) {
        if (!is_by_kernel)
            count = left(alone, true);
        commands_reap();
        if (now_ms() > deadline)
            return count > 0 ? count : 1;
        poll(NULL, 0, PAUSE_MS);
        while (commands_reap())
            ;
    }
    return 0;
}

/* Limits and scheduling, which a process hands on to those that it starts, and others of its user may change. */
struct inherited {
    struct rlimit limits[RLIM_NLIMITS];
    char scheduling[ATTRIBUTES_BYTES];
    long input_priority;
    unsigned char processors[PROCESSORS_MAX / 8]; /* zero where they may be all that the container has */
};

static struct inherited at_first, now;
static unsigned char processors[PROCESSORS_MAX / 8];
static bool is_narrowed; /* to fewer processors than the container has */

static void read_processors(unsigned char *into) {
    memset(into, 0, sizeof processors);
    syscall(SYS_sched_getaffinity, 0, sizeof processors, into);
}

/* Those of a container may change: they are set anew, and not compared, unless this process had fewer from the start. */
static void restore_processors(void) {
    syscall(SYS_sched_setaffinity, 0, sizeof processors, processors);
}

static void read_inherited(struct inherited *inherited) {
    memset(inherited, 0, sizeof *inherited);
    for (int which = 0; which < RLIM_NLIMITS; which++)
        getrlimit((__rlimit_resource_t)which, &inherited->limits[which]);
    syscall(SYS_sched_getattr, 0, inherited->scheduling, ATTRIBUTES_BYTES, 0);
    inherited->input_priority = syscall(SYS_ioprio_get, IOPRIO_WHO_PROCESS, 0);
    if (is_narrowed)
        read_processors(inherited->processors);
}

bool is_changed(void) {
    restore_processors();
    read_inherited(&now);
    return memcmp(&now, &at_first, sizeof now) != 0;
}

void clearing_begin(void) {
    unsigned char had[sizeof processors], all[sizeof processors];
    char path[PATH_BYTES_MAX];
    snprintf(path, sizeof path, "/proc/%d/task/%d/children", getpid(), getpid());
    lists_children = access(path, R_OK) == 0;
    read_processors(had);
    memset(processors, 0xff, sizeof processors);
    restore_processors();
    read_processors(all);
    is_narrowed = memcmp(had, all, sizeof had) != 0;
    if (is_narrowed) {
        memcpy(processors, had, sizeof processors);
        restore_processors();
    }
    read_inherited(&at_first);
}
