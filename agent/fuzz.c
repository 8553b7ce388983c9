/* Feeds messages that were changed at random to what reads them: `fuzz COUNT SEED`.
 *
 * Each is a copy of exactly its size, so that a sanitizer notices a byte that is read or written beyond it. What was read
 * is looked at: its strings have to lie in the message. */

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent.h"

enum { BYTES_MAX = 4096, CHANGES_MAX = 8 };

static const char *const SEEDS[] = {
    "{\"do\":\"run\",\"id\":\"1\",\"argv\":[\"sh\",\"-c\",\"echo $A\"],\"env\":{\"A\":\"b\",\"C\":\"\"},\"cwd\":\"/\"}",
    "{\"cwd\":\"\\u0061\\ud83d\\ude00\\udc80\",\"env\":{},\"argv\":[],\"id\":\"\xc3\xbc\",\"do\":\"run\",\"more\":[{\"a\":[1,2.5e3]},null]}",
    "{\"do\":\"signal\",\"id\":\"17\",\"signal\":15}",
    "{\"do\":\"clear\",\"but\":[\"1\",\"2\",\"a\\\"b\"],\"alone\":true}",
    "{ \"do\" : \"keep\" , \"key\" : \"0123456789abcdef\" }",
    "{\"do\":\"end\",\"code\":255}",
    "{\"do\":\"run\",\"id\":\"1\",\"argv\":[\"\\u0000\",\"\\n\\t\\b\\f\\r\\/\\\\\"],\"env\":{\"=\":\"=\",\"\\u003d\":\"\"},\"cwd\":\"\"}",
    "{\"x\":{\"x\":{\"x\":{\"x\":[[[[\"\"]]]]}}},\"do\":\"clear\"}",
};
static const char *const WORDS[] = {"\"", "\\", "\\u", "\\ud800", "\\udc00", "{", "}", "[", "]", ",", ":", "true", "false",
                                    "null", "\"do\"", "\"id\"", "\"env\"", "\"argv\"", "-1", "99999999999", "\x80", "\xf4\x90",
                                    "\xed\xa0\x80", "\xf0\x9f\x98\x80", "\xff", "="};
enum { SEED_COUNT = sizeof SEEDS / sizeof *SEEDS, WORD_COUNT = sizeof WORDS / sizeof *WORDS };

static uint64_t state;
static struct message message;

static unsigned drawn(unsigned below) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (unsigned)((state * 0x2545f4914f6cdd1dULL >> 33) % below);
}

static size_t insert(char *text, size_t length, size_t at, const char *what, size_t bytes) {
    if (length + bytes > BYTES_MAX)
        return length;
    memmove(text + at + bytes, text + at, length - at);
    memcpy(text + at, what, bytes);
    return length + bytes;
}

static size_t change(char *text, size_t length) {
    size_t at = drawn((unsigned)length + 1), bytes;
    char byte;
    const char *word;
    char part[64];
    switch (drawn(6)) {
    case 0:
        if (at < length)
            text[at] = (char)(text[at] ^ 1 << drawn(8));
        return length;
    case 1:
        byte = (char)drawn(256);
        return insert(text, length, at, &byte, 1);
    case 2:
        word = WORDS[drawn(WORD_COUNT)];
        return insert(text, length, at, word, strlen(word));
    case 3:
        bytes = drawn(16);
        bytes = bytes < length - at ? bytes : length - at;
        memmove(text + at, text + at + bytes, length - at - bytes);
        return length - bytes;
    case 4:
        return drawn(8) == 0 ? at : length;
    default:
        bytes = drawn(sizeof part);
        bytes = bytes < length - at ? bytes : length - at;
        memcpy(part, text + at, bytes);
        return insert(text, length, drawn((unsigned)length + 1), part, bytes);
    }
}

static void must_be_in(const char *string, const char *text, size_t length) {
    if (string < text || string >= text + length || memchr(string, '\0', (size_t)(text + length - string)) == NULL)
        abort();
}

static void look_at(const char *text, size_t length) {
    if (message.arguments > ARGUMENTS_MAX || message.variables > VARIABLES_MAX || message.kept > COMMANDS_MAX)
        abort();
    if (strlen(message.id) > ID_BYTES_MAX || message.number < 0 || message.number > 255)
        abort();
    for (size_t at = 0; at < message.arguments; at++)
        must_be_in(message.argv[at], text, length);
    for (size_t at = 0; at < message.variables; at++)
        must_be_in(message.env[at], text, length);
    for (size_t at = 0; at < message.kept; at++)
        must_be_in(message.but[at], text, length);
    if (message.what == RUN)
        must_be_in(message.cwd, text, length);
    if (message.what == KEEP)
        must_be_in(message.key, text, length);
}

int main(int count, char **arguments) {
    unsigned long wanted = count > 1 ? strtoul(arguments[1], NULL, 10) : 100000, taken = 0;
    state = (count > 2 ? strtoul(arguments[2], NULL, 10) : 1) * 0x9e3779b97f4a7c15ULL | 1;
    for (unsigned long number = 0; number < wanted; number++) {
        char text[BYTES_MAX];
        const char *seed = SEEDS[drawn(SEED_COUNT)];
        size_t length = strlen(seed);
        memcpy(text, seed, length);
        for (unsigned changes = number < SEED_COUNT ? 0 : drawn(CHANGES_MAX); changes > 0; changes--)
            length = change(text, length);
        char *copy = malloc(length > 0 ? length : 1);
        if (copy == NULL)
            return 1;
        memcpy(copy, text, length);
        if (message_read(&message, copy, length) == NULL) {
            look_at(copy, length);
            taken++;
        }
        free(copy);
    }
    printf("%lu of %lu could be read\n", taken, wanted);
    return 0;
}
