/* The parts of the agent, and every bound that it keeps. Nothing is allocated while it runs: all room is set aside. */

#ifndef ROTA_AGENT_H
#define ROTA_AGENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum {
    LENGTH_BYTES = 4,
    MESSAGE_BYTES_MAX = 8 * 1024 * 1024,
    DESCRIPTORS_MAX = 3,
    ARGUMENTS_MAX = 65536,
    VARIABLES_MAX = 4096,  /* of a message, and as many again of the environment of the agent */
    COMMANDS_MAX = 1024,   /* at the same time */
    ID_BYTES_MAX = 128,
    KEY_BYTES_MAX = 128,
    ERROR_BYTES_MAX = 1024,
    ANSWER_BYTES_MAX = 16384,     /* the longest answer, with every byte of it escaped */
    OUTGOING_BYTES_MAX = 65536,   /* answers that the runner has not read yet */
    DEPTH_MAX = 8,                /* of values that are passed over */
    SIGNAL_MAX = 64,
    START_MS_MAX = 10000,         /* from the fork to the end of exec */
    CLEAR_MS_MAX = 10000,
    PAUSE_MS = 2,                 /* between two looks at what has still to end */
    CONNECT_PAUSE_MS = 20,        /* between two tries to reach the runner */
    REAPED_AT_ONCE_MAX = 4096,
    PROCESSES_MAX = 65536,        /* that one look takes in; what is beyond it is left for the next look */
    NO_PROGRAM = 127,
    NO_PERMISSION = 126,
    EMPTIED_MAX = 8,              /* folders */
    FIRST = 1,                    /* the process that a namespace ends with */
};

/* message.c: one message of the runner. */

enum what { RUN, SIGNAL, CLEAR, KEEP, END };

struct message {
    enum what what;
    char id[ID_BYTES_MAX + 1];
    int number; /* the signal, or the exit code */
    bool alone;
    char *cwd;
    char *key;
    size_t arguments, variables, kept;
    const char *cannot_start; /* why a command that is well-formed as a message is no command; NULL: it is one */
    int cannot_start_errno;   /* the error of the kernel that says the same; 0: none does */
    char *argv[ARGUMENTS_MAX + 1];
    char *env[VARIABLES_MAX]; /* NAME=VALUE */
    char *but[COMMANDS_MAX];  /* identifiers of commands */
};

/* Read a message, in place: strings of it point into the text, which is changed. Returns NULL, or why it is none. */
const char *message_read(struct message *message, char *text, size_t length);
/* The length of the UTF-8 sequence at this place; 0: there is none. */
size_t utf8_length(const char *at, const char *end);

/* answers.c: what the runner has still to be sent. All of it is queued; nothing waits for the runner. */

void answers_begin(int control);
/* Whether the longest answer fits in. */
bool answers_have_room(void);
bool answers_waiting(void);
/* Send what can be sent now. False: the connection is over. */
bool answers_send(void);
void answer_ready(int pid, unsigned uid, const char *key, int descriptor);
void answer_started(const char *id, int pid);
void answer_ended(const char *id, int code, const char *error);
void answer_cleared(unsigned left, bool changed);
void answer_kept(void);
void answer_stopping(void);

/* commands.c: what runs for the runner. */

void commands_begin(int signals, char **environment);
void commands_start(struct message *message, const int *descriptors);
void commands_signal(const char *id, int number);
/* Take away what has ended, orphans included. True: there may be more. */
bool commands_reap(void);
/* Queue the news of commands that have ended, as far as there is room. */
void commands_report(void);
/* Forget all of them: nobody asks any more. */
void commands_forget(void);
void commands_mark_kept(char *const *ids, size_t count);
bool commands_is_kept(int pid);
/* The processes of those that are kept, one after the other: pass 0 first, then what was returned; -1: no more. */
int commands_next_kept(int *pid, int from);

/* clearing.c: ending processes, and being sure that they have ended. */

void clearing_begin(void);
/* End all that commands started, but those that are kept; `alone`: also what came into the namespace from outside.
 * Returns how many are left. */
unsigned clear(bool alone, bool keeps);
/* Whether what commands inherit of this process is not what it was at the beginning. */
bool is_changed(void);

/* Entries of a folder, as the kernel writes them. */
struct entry {
    uint64_t inode;
    int64_t offset;
    unsigned short length;
    unsigned char type;
    char name[];
};

/* emptying.c */

/* Remove what is in a folder. False: not all could be, or not in time. */
bool empty_folder(const char *path);
/* Remove shared memory, queues and semaphores that outlive processes. */
bool empty_ipc(void);

/* main.c */

long long now_ms(void);
void note(const char *text, const char *more);

#endif
