/* Answers wait in one buffer until the runner reads them. Its owner makes sure of room before it answers. */

#include <errno.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "agent.h"

static int control = -1;
static char outgoing[OUTGOING_BYTES_MAX];
static size_t filled, begun; /* the end of what waits; where the answer begins that is being written */
static int passed = -1;      /* a descriptor that goes with the first byte */

void answers_begin(int to) {
    control = to;
    filled = 0;
    passed = -1;
}

bool answers_have_room(void) {
    return sizeof outgoing - filled >= ANSWER_BYTES_MAX;
}

bool answers_waiting(void) {
    return filled > 0;
}

bool answers_send(void) {
    while (filled > 0) {
        struct iovec part = {.iov_base = outgoing, .iov_len = filled};
        union {
            struct cmsghdr align;
            char room[CMSG_SPACE(sizeof(int))];
        } extra;
        struct msghdr header = {.msg_iov = &part, .msg_iovlen = 1};
        if (passed >= 0) {
            memset(&extra, 0, sizeof extra);
            header.msg_control = &extra;
            header.msg_controllen = sizeof extra.room;
            struct cmsghdr *first = CMSG_FIRSTHDR(&header);
            first->cmsg_level = SOL_SOCKET;
            first->cmsg_type = SCM_RIGHTS;
            first->cmsg_len = CMSG_LEN(sizeof(int));
            memcpy(CMSG_DATA(first), &passed, sizeof passed);
        }
        ssize_t sent = sendmsg(control, &header, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR)
            continue;
        if (sent < 0)
            return errno == EAGAIN || errno == ENOBUFS;
        passed = -1;
        filled -= (size_t)sent;
        memmove(outgoing, outgoing + sent, filled);
    }
    return true;
}

static void put(const char *text, size_t length) {
    /* Its callers have made sure of room. An agent that has not is not to go on. */
    if (length > sizeof outgoing - filled)
        abort();
    memcpy(outgoing + filled, text, length);
    filled += length;
}

__attribute__((format(printf, 1, 2))) static void putf(const char *format, ...) {
    char text[64];
    va_list values;
    va_start(values, format);
    int length = vsnprintf(text, sizeof text, format, values);
    va_end(values);
    put(text, length > 0 ? (size_t)length : 0);
}

static void put_string(const char *text) {
    const char *end = text + strlen(text);
    put("\"", 1);
    while (text < end) {
        size_t length = utf8_length(text, end);
        if (length == 0) {
            put("\xef\xbf\xbd", 3);
            length = 1;
        } else if (length == 1 && ((unsigned char)*text < 0x20 || *text == '"' || *text == '\\')) {
            putf("\\u%04x", (unsigned)(unsigned char)*text);
        } else {
            put(text, length);
        }
        text += length;
    }
    put("\"", 1);
}

static void open_answer(void) {
    begun = filled;
    put("\0\0\0\0{", LENGTH_BYTES + 1);
}

static void close_answer(void) {
    put("}", 1);
    size_t length = filled - begun - LENGTH_BYTES;
    for (int byte = 0; byte < LENGTH_BYTES; byte++)
        outgoing[begun + (size_t)byte] = (char)(length >> 8 * (LENGTH_BYTES - 1 - byte) & 0xff);
}

void answer_ready(int pid, unsigned uid, const char *key, int descriptor) {
    open_answer();
    putf("\"ready\":%d,\"uid\":%u", pid, uid);
    if (key != NULL) {
        put(",\"key\":", 7);
        put_string(key);
    }
    close_answer();
    passed = descriptor;
}

void answer_started(const char *id, int pid) {
    open_answer();
    put("\"id\":", 5);
    put_string(id);
    putf(",\"pid\":%d", pid);
    close_answer();
}

void answer_ended(const char *id, int code, const char *error) {
    open_answer();
    put("\"id\":", 5);
    put_string(id);
    putf(",\"code\":%d", code);
    if (error != NULL) {
        put(",\"error\":", 9);
        put_string(error);
    }
    close_answer();
}

void answer_cleared(unsigned left, bool changed) {
    open_answer();
    putf("\"cleared\":%u", left);
    if (changed)
        putf(",\"changed\":true");
    close_answer();
}

void answer_kept(void) {
    open_answer();
    putf("\"kept\":true");
    close_answer();
}

void answer_stopping(void) {
    open_answer();
    putf("\"stopping\":true");
    close_answer();
}
