#include "context/span.h"

#include <string.h>

/* Reads lowercase digits only, as the standard requires. */
static bool read_hex(uint8_t *to, const char *text, size_t bytes)
{
    for (size_t i = 0; i < 2 * bytes; i++) {
        bool letter = text[i] >= 'a' && text[i] <= 'f';
        if (!letter && (text[i] < '0' || text[i] > '9')) return false;
        to[i / 2] = (uint8_t)(to[i / 2] << 4 | (letter ? text[i] - 'a' + 10 : text[i] - '0'));
    }
    return true;
}

static char *write_hex(char *to, const uint8_t *bytes, size_t count)
{
    static const char digits[] = "0123456789abcdef";
    for (size_t i = 0; i < count; i++) {
        *to++ = digits[bytes[i] >> 4];
        *to++ = digits[bytes[i] & 15];
    }
    return to;
}

static bool is_zero(const uint8_t *bytes, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (bytes[i]) return false;
    return true;
}

bool ps_span_of_header(ps_span *span, const char *text, size_t size)
{
    enum { LENGTH = PS_TRACEPARENT_BUFFER - 1 };
    ps_span read = {.known = true};
    uint8_t version = 0;
    *span = (ps_span){.known = false};
    if (size < LENGTH || text[2] != '-' || text[35] != '-' || text[52] != '-') return false;
    if (!read_hex(&version, text, 1) || !read_hex(read.trace_id, text + 3, sizeof(read.trace_id)) ||
        !read_hex(read.span_id, text + 36, sizeof(read.span_id)) || !read_hex(&read.flags, text + 53, 1))
        return false;
    /* Later versions may have more fields. */
    if (version == 0xff || (size > LENGTH && (version == 0 || text[LENGTH] != '-'))) return false;
    if (is_zero(read.trace_id, sizeof(read.trace_id)) || is_zero(read.span_id, sizeof(read.span_id)))
        return false;
    read.flags &= PS_SPAN_FLAGS;
    *span = read;
    return true;
}

const char *ps_span_text(char to[static PS_TRACEPARENT_BUFFER], const ps_span *span)
{
    to[0] = '\0';
    if (!span->known) return to;
    memcpy(to, "00-", 3);
    char *end = write_hex(to + 3, span->trace_id, sizeof(span->trace_id));
    *end++ = '-';
    end = write_hex(end, span->span_id, sizeof(span->span_id));
    *end++ = '-';
    *write_hex(end, &span->flags, 1) = '\0';
    return to;
}

uint64_t ps_span_number(const uint8_t span_id[static 8])
{
    uint64_t number = 0;
    for (int i = 0; i < 8; i++) number = number << 8 | span_id[i];
    return number;
}

void ps_span_set_number(uint8_t span_id[static 8], uint64_t number)
{
    for (int i = 7; i >= 0; i--, number >>= 8) span_id[i] = (uint8_t)number;
}
