/* Reads one message: an object of JSON with names that are known. Nothing is copied, and nothing recurses far. */

#include <errno.h>
#include <stdint.h>
#include <string.h>

#include "agent.h"

static const char NOT_JSON[] = "it is not JSON";
static const char NOT_EXPECTED[] = "a field is not of its type";
static const char TOO_MUCH[] = "it is beyond a bound";

struct reader {
    char *at, *end;
    bool has_nul;  /* a string had a zero byte in it */
    bool is_lossy; /* a string had half of a surrogate pair that stands for no byte */
    const char *wrong;
};

static bool fail(struct reader *reader, const char *why) {
    if (reader->wrong == NULL)
        reader->wrong = why;
    return false;
}

size_t utf8_length(const char *at, const char *end) {
    const unsigned char *byte = (const unsigned char *)at;
    size_t left = (size_t)(end - at), length;
    uint32_t point;
    if (left == 0)
        return 0;
    if (byte[0] < 0x80)
        return 1;
    if (byte[0] >= 0xc2 && byte[0] <= 0xdf)
        length = 2, point = byte[0] & 0x1f;
    else if ((byte[0] & 0xf0) == 0xe0)
        length = 3, point = byte[0] & 0x0f;
    else if (byte[0] >= 0xf0 && byte[0] <= 0xf4)
        length = 4, point = byte[0] & 0x07;
    else
        return 0;
    if (left < length)
        return 0;
    for (size_t number = 1; number < length; number++) {
        if ((byte[number] & 0xc0) != 0x80)
            return 0;
        point = point << 6 | (byte[number] & 0x3f);
    }
    if ((length == 3 && point < 0x800) || (length == 4 && (point < 0x10000 || point > 0x10ffff)))
        return 0;
    return point >= 0xd800 && point <= 0xdfff ? 0 : length;
}

static void skip_blanks(struct reader *reader) {
    while (reader->at < reader->end && (*reader->at == ' ' || *reader->at == '\t' || *reader->at == '\n' ||
                                        *reader->at == '\r'))
        reader->at++;
}

/* Whether the next thing is this character, which is taken then. */
static bool take(struct reader *reader, char wanted) {
    skip_blanks(reader);
    if (reader->at == reader->end || *reader->at != wanted)
        return false;
    reader->at++;
    return true;
}

static bool expect(struct reader *reader, char wanted) {
    return take(reader, wanted) || fail(reader, NOT_JSON);
}

static bool take_word(struct reader *reader, const char *word) {
    size_t length = strlen(word);
    skip_blanks(reader);
    if ((size_t)(reader->end - reader->at) < length || memcmp(reader->at, word, length) != 0)
        return false;
    reader->at += length;
    return true;
}

static bool take_hex(struct reader *reader, uint32_t *value) {
    if (reader->end - reader->at < 4)
        return fail(reader, NOT_JSON);
    *value = 0;
    for (int number = 0; number < 4; number++) {
        char digit = *reader->at++;
        uint32_t nibble;
        if (digit >= '0' && digit <= '9')
            nibble = (uint32_t)(digit - '0');
        else if (digit >= 'a' && digit <= 'f')
            nibble = (uint32_t)(digit - 'a' + 10);
        else if (digit >= 'A' && digit <= 'F')
            nibble = (uint32_t)(digit - 'A' + 10);
        else
            return fail(reader, NOT_JSON);
        *value = *value << 4 | nibble;
    }
    return true;
}

/* What follows \u, as bytes. Half of a pair stands for a byte that is no UTF-8, as Python has it. */
static bool take_code_point(struct reader *reader, char **to) {
    uint32_t point, other;
    if (!take_hex(reader, &point))
        return false;
    if (point >= 0xd800 && point <= 0xdbff) {
        char *back = reader->at;
        if (reader->end - reader->at >= 6 && reader->at[0] == '\\' && reader->at[1] == 'u') {
            reader->at += 2;
            if (!take_hex(reader, &other))
                return false;
            if (other >= 0xdc00 && other <= 0xdfff)
                point = 0x10000 + ((point - 0xd800) << 10) + (other - 0xdc00);
            else
                reader->at = back;
        }
    }
    char *at = *to;
    if (point >= 0xdc80 && point <= 0xdcff) {
        *at++ = (char)(point & 0xff);
    } else if (point >= 0xd800 && point <= 0xdfff) {
        reader->is_lossy = true;
    } else if (point < 0x80) {
        reader->has_nul = reader->has_nul || point == 0;
        *at++ = (char)point;
    } else if (point < 0x800) {
        *at++ = (char)(0xc0 | point >> 6);
        *at++ = (char)(0x80 | (point & 0x3f));
    } else if (point < 0x10000) {
        *at++ = (char)(0xe0 | point >> 12);
        *at++ = (char)(0x80 | (point >> 6 & 0x3f));
        *at++ = (char)(0x80 | (point & 0x3f));
    } else {
        *at++ = (char)(0xf0 | point >> 18);
        *at++ = (char)(0x80 | (point >> 12 & 0x3f));
        *at++ = (char)(0x80 | (point >> 6 & 0x3f));
        *at++ = (char)(0x80 | (point & 0x3f));
    }
    *to = at;
    return true;
}

/* Decode a string to a place before it, or right where it is: it never gets longer. Returns where its zero byte is. */
static char *take_string(struct reader *reader, char *to) {
    static const char ESCAPED[] = "\"\\/bfnrt", MEANT[] = "\"\\/\b\f\n\r\t";
    while (reader->at < reader->end) {
        char byte = *reader->at;
        if (byte == '"') {
            reader->at++;
            *to = '\0';
            return to;
        }
        if ((unsigned char)byte < 0x20)
            break;
        if (byte != '\\') {
            size_t length = utf8_length(reader->at, reader->end);
            if (length == 0)
                break;
            memmove(to, reader->at, length);
            to += length;
            reader->at += length;
            continue;
        }
        if (reader->end - reader->at < 2)
            break;
        byte = reader->at[1];
        reader->at += 2;
        const char *which = byte != '\0' ? strchr(ESCAPED, byte) : NULL;
        if (which != NULL) {
            *to++ = MEANT[which - ESCAPED];
        } else if (byte != 'u') {
            break;
        } else if (!take_code_point(reader, &to)) {
            return NULL;
        }
    }
    fail(reader, NOT_JSON);
    return NULL;
}

/* A string where it stands; NULL: there is none. */
static char *string(struct reader *reader) {
    if (!take(reader, '"')) {
        fail(reader, NOT_EXPECTED);
        return NULL;
    }
    char *text = reader->at;
    return take_string(reader, text) != NULL ? text : NULL;
}

/* A string that names something: no zero byte, no half of a pair, nothing that could not be said back. */
static char *name(struct reader *reader, size_t bytes_max) {
    bool had_nul = reader->has_nul, was_lossy = reader->is_lossy;
    reader->has_nul = reader->is_lossy = false;
    char *text = string(reader);
    if (text != NULL) {
        size_t length = strlen(text);
        bool is_plain = !reader->has_nul && !reader->is_lossy && length > 0;
        for (size_t at = 0; is_plain && at < length;) {
            size_t next = utf8_length(text + at, text + length);
            is_plain = next > 0;
            at += next;
        }
        if (!is_plain)
            fail(reader, NOT_EXPECTED);
        else if (length > bytes_max)
            fail(reader, TOO_MUCH);
    }
    reader->has_nul = had_nul;
    reader->is_lossy = was_lossy;
    return reader->wrong == NULL ? text : NULL;
}

static bool number(struct reader *reader, int *value, int max) {
    skip_blanks(reader);
    char *begin = reader->at;
    *value = 0;
    while (reader->at < reader->end && *reader->at >= '0' && *reader->at <= '9' && *value <= max)
        *value = *value * 10 + (*reader->at++ - '0');
    if (reader->at == begin)
        return fail(reader, NOT_EXPECTED);
    return *value <= max || fail(reader, TOO_MUCH);
}

static bool strings(struct reader *reader, char **to, size_t max, size_t *count, bool *is_too_many) {
    *count = 0;
    if (!take(reader, '['))
        return fail(reader, NOT_EXPECTED);
    if (take(reader, ']'))
        return true;
    do {
        char *text = string(reader);
        if (text == NULL)
            return false;
        if (*count < max)
            to[(*count)++] = text;
        else
            *is_too_many = true;
    } while (take(reader, ','));
    return expect(reader, ']');
}

/* The object as NAME=VALUE, made where it stands: between a name and its value there is room for the sign. */
static bool variables(struct reader *reader, struct message *message, bool *is_too_many) {
    message->variables = 0;
    if (!take(reader, '{'))
        return fail(reader, NOT_EXPECTED);
    if (take(reader, '}'))
        return true;
    do {
        if (!take(reader, '"'))
            return fail(reader, NOT_JSON);
        char *variable = reader->at, *sign = take_string(reader, variable);
        if (sign == NULL || !expect(reader, ':'))
            return false;
        if (memchr(variable, '=', (size_t)(sign - variable)) != NULL)
            message->cannot_start = "illegal environment variable name";
        if (!take(reader, '"'))
            return fail(reader, NOT_EXPECTED);
        *sign = '=';
        if (take_string(reader, sign + 1) == NULL)
            return false;
        if (message->variables < VARIABLES_MAX)
            message->env[message->variables++] = variable;
        else
            *is_too_many = true;
    } while (take(reader, ','));
    return expect(reader, '}');
}

static bool skip_number(struct reader *reader) {
    char *begin = reader->at;
    while (reader->at < reader->end && *reader->at != '\0' && strchr("+-.0123456789eE", *reader->at) != NULL)
        reader->at++;
    return reader->at > begin || fail(reader, NOT_JSON);
}

/* Pass over a value of a field that is not known. */
static bool skip(struct reader *reader, int depth) {
    if (depth == 0)
        return fail(reader, TOO_MUCH);
    if (take(reader, '"'))
        return take_string(reader, reader->at) != NULL;
    if (take(reader, '[')) {
        if (take(reader, ']'))
            return true;
        do {
            if (!skip(reader, depth - 1))
                return false;
        } while (take(reader, ','));
        return expect(reader, ']');
    }
    if (take(reader, '{')) {
        if (take(reader, '}'))
            return true;
        do {
            if (!expect(reader, '"') || take_string(reader, reader->at) == NULL || !expect(reader, ':') ||
                !skip(reader, depth - 1))
                return false;
        } while (take(reader, ','));
        return expect(reader, '}');
    }
    return take_word(reader, "true") || take_word(reader, "false") || take_word(reader, "null") ||
           skip_number(reader);
}

enum { HAS_DO = 1, HAS_ID = 2, HAS_ARGV = 4, HAS_ENV = 8, HAS_CWD = 16, HAS_NUMBER = 32, HAS_KEY = 64 };

static unsigned field(struct reader *reader, struct message *message, const char *called, bool *is_too_much) {
    static const char *const KNOWN[] = {"run", "signal", "clear", "keep", "end"};
    bool is_too_many = false;
    if (strcmp(called, "do") == 0) {
        char *text = name(reader, ID_BYTES_MAX);
        for (size_t at = 0; text != NULL && at < sizeof KNOWN / sizeof *KNOWN; at++) {
            if (strcmp(text, KNOWN[at]) == 0) {
                message->what = (enum what)at;
                return HAS_DO;
            }
        }
        fail(reader, NOT_EXPECTED);
    } else if (strcmp(called, "id") == 0) {
        char *text = name(reader, ID_BYTES_MAX);
        if (text != NULL)
            memcpy(message->id, text, strlen(text) + 1);
        return HAS_ID;
    } else if (strcmp(called, "argv") == 0) {
        strings(reader, message->argv, ARGUMENTS_MAX, &message->arguments, is_too_much);
        return HAS_ARGV;
    } else if (strcmp(called, "env") == 0) {
        variables(reader, message, is_too_much);
        return HAS_ENV;
    } else if (strcmp(called, "cwd") == 0) {
        message->cwd = string(reader);
        return HAS_CWD;
    } else if (strcmp(called, "signal") == 0) {
        number(reader, &message->number, SIGNAL_MAX);
        return HAS_NUMBER;
    } else if (strcmp(called, "code") == 0) {
        number(reader, &message->number, 255);
        return HAS_NUMBER;
    } else if (strcmp(called, "key") == 0) {
        message->key = name(reader, KEY_BYTES_MAX);
        return HAS_KEY;
    } else if (strcmp(called, "but") == 0) {
        if (strings(reader, message->but, COMMANDS_MAX, &message->kept, &is_too_many) && is_too_many)
            fail(reader, TOO_MUCH);
    } else if (strcmp(called, "alone") == 0) {
        message->alone = take_word(reader, "true");
        if (!message->alone && !take_word(reader, "false"))
            fail(reader, NOT_EXPECTED);
    } else {
        skip(reader, DEPTH_MAX);
    }
    return 0;
}

const char *message_read(struct message *message, char *text, size_t length) {
    static const unsigned NEEDED[] = {
        [RUN] = HAS_DO | HAS_ID | HAS_ARGV | HAS_ENV | HAS_CWD,
        [SIGNAL] = HAS_DO | HAS_ID | HAS_NUMBER,
        [CLEAR] = HAS_DO,
        [KEEP] = HAS_DO | HAS_KEY,
        [END] = HAS_DO | HAS_NUMBER,
    };
    struct reader reader = {.at = text, .end = text + length};
    unsigned had = 0;
    bool is_too_much = false;
    /* Not all of it: the arrays are large, and what is beyond their counts is not looked at. */
    message->id[0] = '\0';
    message->number = 0;
    message->alone = false;
    message->cwd = message->key = NULL;
    message->arguments = message->variables = message->kept = 0;
    message->cannot_start = NULL;
    message->cannot_start_errno = 0;
    if (!expect(&reader, '{'))
        return reader.wrong;
    if (!take(&reader, '}')) {
        do {
            if (!expect(&reader, '"'))
                return reader.wrong;
            char *called = reader.at;
            if (take_string(&reader, called) == NULL || !expect(&reader, ':'))
                return reader.wrong;
            unsigned has = field(&reader, message, called, &is_too_much);
            if (reader.wrong != NULL)
                return reader.wrong;
            if (had & has)
                return "it has a field twice";
            had |= has;
        } while (take(&reader, ','));
        if (!expect(&reader, '}'))
            return reader.wrong;
    }
    skip_blanks(&reader);
    if (reader.at != reader.end)
        return NOT_JSON;
    if (!(had & HAS_DO) || (had & NEEDED[message->what]) != NEEDED[message->what])
        return "a field is missing";
    message->argv[message->arguments] = NULL;
    if (message->arguments == 0)
        message->cannot_start = "argv is empty";
    else if (reader.has_nul)
        message->cannot_start = "embedded null byte";
    else if (reader.is_lossy)
        message->cannot_start = "surrogates not allowed";
    if (is_too_much)
        message->cannot_start_errno = E2BIG;
    return NULL;
}
