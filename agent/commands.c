/* The commands that run for the runner: how they begin, and what becomes of them. */

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent.h"

static const char DEFAULT_PATH[] = "/bin:/usr/bin";
enum { PROGRAM_BYTES_MAX = 4096 };

struct command {
    int pid; /* 0: nobody's place */
    bool is_over, is_kept;
    int code;
    char id[ID_BYTES_MAX + 1];
};

static struct command commands[COMMANDS_MAX];
static int places; /* those beyond are nobody's */
static int signals;
static char **environment;
static size_t environment_count;
static char *composed[2 * VARIABLES_MAX + 1];

/* What a command that could not begin says of that. */
struct failure {
    int where, error;
};
enum { IN_PLACE = 1, IN_PROGRAM, IN_OTHER };

void commands_begin(int signals_from, char **inherited) {
    signals = signals_from;
    environment = inherited;
    while (inherited[environment_count] != NULL && environment_count < VARIABLES_MAX)
        environment_count++;
}

static bool is_same_name(const char *one, const char *other) {
    size_t length = strcspn(one, "=");
    return strncmp(one, other, length) == 0 && other[length] == '=';
}

/* The environment of the agent, with that of the message on top. */
static void compose(struct message *message) {
    size_t count = 0;
    for (size_t at = 0; at < message->variables; at++) {
        bool is_last = true;
        for (size_t next = at + 1; next < message->variables && is_last; next++)
            is_last = !is_same_name(message->env[at], message->env[next]);
        if (is_last)
            composed[count++] = message->env[at];
    }
    size_t own = count;
    for (size_t at = 0; at < environment_count; at++) {
        bool is_named = false;
        for (size_t next = 0; next < own && !is_named; next++)
            is_named = is_same_name(environment[at], composed[next]);
        if (!is_named)
            composed[count++] = environment[at];
    }
    composed[count] = NULL;
}

/* Start the program, wherever the path has it. Returns the error, if it could not be.
 *
 * A folder that may not be searched is passed over, as a shell does: the kernel fails there as if the program itself
 * were forbidden. */
static int execute(char **argv) {
    if (strchr(argv[0], '/') != NULL) {
        execve(argv[0], argv, composed);
        return errno;
    }
    const char *path = DEFAULT_PATH;
    for (char **at = composed; *at != NULL; at++)
        if (strncmp(*at, "PATH=", 5) == 0)
            path = *at + 5;
    int error = 0;
    for (;;) {
        char program[PROGRAM_BYTES_MAX];
        struct stat found;
        int folder = (int)strcspn(path, ":");
        int length = snprintf(program, sizeof program, "%.*s%s%s", folder, path, folder > 0 ? "/" : "", argv[0]);
        if (length > 0 && length < (int)sizeof program) {
            execve(program, argv, composed);
            int failed = errno;
            if (failed != ENOENT && failed != ENOTDIR && error == 0 && lstat(program, &found) == 0)
                error = failed;
        }
        if (path[folder] == '\0')
            break;
        path += folder + 1;
    }
    return error != 0 ? error : ENOENT;
}

_Noreturn static void begin(struct message *message, const int *descriptors, int report) {
    struct failure failure = {.where = IN_OTHER};
    sigset_t none;
    sigemptyset(&none);
    for (int number = 1; number <= SIGNAL_MAX; number++)
        signal(number, SIG_DFL);
    sigprocmask(SIG_SETMASK, &none, NULL);
    setsid();
    if (chdir(message->cwd) != 0) {
        failure.where = IN_PLACE;
    } else if (dup2(descriptors[0], 0) >= 0 && dup2(descriptors[1], 1) >= 0 && dup2(descriptors[2], 2) >= 0) {
        failure.where = IN_PROGRAM;
        errno = execute(message->argv);
    }
    failure.error = errno;
    if (write(report, &failure, sizeof failure) != sizeof failure)
        _exit(NO_PROGRAM);
    _exit(NO_PROGRAM);
}

/* Wait until a new process is what it is to be. Whatever runs beside it may have stopped it: there is a bound. */
static struct failure wait_for(int report) {
    struct failure failure = {0};
    long long deadline = now_ms() + START_MS_MAX;
    for (;;) {
        long long left = deadline - now_ms();
        struct pollfd news = {.fd = report, .events = POLLIN};
        int count = left > 0 ? poll(&news, 1, (int)left) : 0;
        if (count < 0 && errno == EINTR)
            continue;
        if (count <= 0)
            return (struct failure){.where = IN_OTHER, .error = ETIMEDOUT};
        ssize_t had = read(report, &failure, sizeof failure);
        if (had < 0 && errno == EINTR)
            continue;
        return had == sizeof failure ? failure : (struct failure){0};
    }
}

static void refuse(struct message *message, int error, const char *about) {
    char text[ERROR_BYTES_MAX];
    snprintf(text, sizeof text, "[Errno %d] %s: '%.*s'", error, strerror(error), (int)(sizeof text / 2), about);
    answer_ended(message->id, error == EACCES || error == EPERM ? NO_PERMISSION : NO_PROGRAM, text);
}

void commands_start(struct message *message, const int *descriptors) {
    struct command *command = NULL;
    int report[2];
    if (message->cannot_start != NULL) {
        answer_ended(message->id, NO_PROGRAM, message->cannot_start);
        return;
    }
    if (message->cannot_start_errno != 0) {
        refuse(message, message->cannot_start_errno, message->argv[0]);
        return;
    }
    for (int at = 0; at < COMMANDS_MAX && command == NULL; at++)
        if (commands[at].pid == 0)
            command = &commands[at];
    if (command == NULL) {
        answer_ended(message->id, NO_PROGRAM, "more commands run at once than an agent takes");
        return;
    }
    compose(message);
    if (pipe2(report, O_CLOEXEC) != 0) {
        refuse(message, errno, message->argv[0]);
        return;
    }
    pid_t pid = fork();
    if (pid == 0)
        begin(message, descriptors, report[1]);
    int error = errno;
    close(report[1]);
    struct failure failure = {.where = IN_OTHER, .error = error};
    if (pid > 0)
        failure = wait_for(report[0]);
    close(report[0]);
    if (failure.where != 0) {
        /* It is nobody's, and is taken away with the others. */
        if (pid > 0)
            kill(pid, SIGKILL);
        refuse(message, failure.error, failure.where == IN_PLACE ? message->cwd : message->argv[0]);
        return;
    }
    *command = (struct command){.pid = pid};
    memcpy(command->id, message->id, sizeof command->id);
    if (command >= commands + places)
        places = (int)(command - commands) + 1;
    answer_started(command->id, pid);
}

void commands_signal(const char *id, int number) {
    for (int at = 0; at < places; at++)
        if (commands[at].pid != 0 && !commands[at].is_over && strcmp(commands[at].id, id) == 0)
            kill(-commands[at].pid, number);
}

bool commands_reap(void) {
    for (int count = 0; count < REAPED_AT_ONCE_MAX; count++) {
        int status;
        pid_t pid = waitpid(-1, &status, WNOHANG | __WALL);
        if (pid <= 0)
            return false;
        for (int at = 0; at < places; at++) {
            if (commands[at].pid == pid && !commands[at].is_over) {
                commands[at].is_over = true;
                commands[at].code = WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
            }
        }
    }
    return true;
}

void commands_report(void) {
    for (int at = 0; at < places && answers_have_room(); at++) {
        if (commands[at].pid != 0 && commands[at].is_over) {
            commands[at].pid = 0;
            answer_ended(commands[at].id, commands[at].code, NULL);
        }
    }
    while (places > 0 && commands[places - 1].pid == 0)
        places--;
}

void commands_forget(void) {
    places = 0;
    memset(commands, 0, sizeof commands);
}

void commands_mark_kept(char *const *ids, size_t count) {
    for (int at = 0; at < places; at++) {
        commands[at].is_kept = false;
        for (size_t named = 0; named < count; named++)
            if (strcmp(commands[at].id, ids[named]) == 0)
                commands[at].is_kept = true;
    }
}

int commands_next_kept(int *pid, int from) {
    for (int at = from; at < places; at++) {
        if (commands[at].pid != 0 && commands[at].is_kept && !commands[at].is_over) {
            *pid = commands[at].pid;
            return at + 1;
        }
    }
    return -1;
}

bool commands_is_kept(int pid) {
    for (int at = 0; at < places; at++)
        if (commands[at].pid == pid && commands[at].is_kept && !commands[at].is_over)
            return true;
    return false;
}
