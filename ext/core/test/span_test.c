#include "context/span.h"

#include "check.h"

#define PARENT "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

static bool is_none(const ps_span *span)
{
    static const ps_span none;
    return memcmp(span, &none, sizeof(none)) == 0;
}

static void takes_a_header_as_the_standard_has_it_and_no_other(void)
{
    static const struct {
        const char *text;
        uint64_t flags; /* or REFUSED */
    } cases[] = {
#define REFUSED 0x100
        {PARENT, 1},
        {"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00", 0},
        {"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-ff", 3},
        {"00-00000000000000000000000000000001-0000000000000001-02", 2},
        {"00-80000000000000000000000000000000-8000000000000000-fc", 0},
        {"cc-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", 1},
        {"cc-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-what the future brings", 1},
        {"cc-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01.what the future brings", REFUSED},
        {"ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", REFUSED},
        {"fF-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", REFUSED},
        {"0g-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", REFUSED},
        {"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-", REFUSED},
        {"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-0", REFUSED},
        {"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-0A", REFUSED},
        {"00-0AF7651916CD43DD8448EB211C80319C-B7AD6B7169203331-01", REFUSED},
        {"00-0af7651916cd43dd8448eb211c80319C-b7ad6b7169203331-01", REFUSED},
        {"00-0af7651916cd43dd8448eb211c80319c-b7ad6b716920333g-01", REFUSED},
        {"00-0af7651916cd43dd8448eb211c80319c-b7ad6b716920333\xff-01", REFUSED},
        {"00-00000000000000000000000000000000-b7ad6b7169203331-01", REFUSED},
        {"00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01", REFUSED},
        {"00_0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", REFUSED},
        {"00-0af7651916cd43dd8448eb211c80319c_b7ad6b7169203331-01", REFUSED},
        {"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331_01", REFUSED},
        {" 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-0", REFUSED},
        {"", REFUSED},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        ps_span span;
        memset(&span, 0xaa, sizeof(span));
        bool taken = ps_span_of_header(&span, cases[i].text, strlen(cases[i].text));
        CHECK_EQUAL(taken ? span.flags : REFUSED, cases[i].flags);
        CHECK(taken ? span.known : is_none(&span));
    }
}

/* A header has its size, and no NUL after it. */
static void reads_no_byte_after_the_header(void)
{
    size_t size = strlen(PARENT);
    for (size_t i = 0; i <= size; i++) {
        ps_span span;
        char *header = malloc(i ? i : 1); /* an AddressSanitizer reports what is read beyond */
        memcpy(header, PARENT, i);
        CHECK_EQUAL(ps_span_of_header(&span, header, i), i == size);
        free(header);
    }
    ps_span span;
    CHECK(!ps_span_of_header(&span, NULL, 0) && is_none(&span));
}

static void no_span_has_no_text(void)
{
    char text[PS_TRACEPARENT_BUFFER] = "what was there";
    ps_span span = {.known = false};
    CHECK(ps_span_text(text, &span) == text);
    CHECK_STRING(text, "");
}

static void the_text_is_what_was_read(void)
{
    ps_span span;
    char text[PS_TRACEPARENT_BUFFER];
    CHECK(ps_span_of_header(&span, PARENT, strlen(PARENT)));
    CHECK_STRING(ps_span_text(text, &span), PARENT);
    CHECK_EQUAL(ps_span_number(span.span_id), 0xb7ad6b7169203331u);
    static const char later[] = "cc-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more";
    CHECK(ps_span_of_header(&span, later, strlen(later)));
    CHECK_STRING(ps_span_text(text, &span), PARENT); /* in the version that is known */
}

/* The application's flags are written as they are. */
static void writes_every_byte_and_no_more_than_its_buffer(void)
{
    uint64_t state = 4711;
    for (int i = 0; i < 1000; i++) {
        uint64_t id[3] = {check_random(&state), check_random(&state), check_random(&state)};
        unsigned flags = (unsigned)check_random(&state) & 0xff;
        ps_span span = {.flags = (uint8_t)flags, .known = true};
        ps_span_set_number(span.trace_id, id[0]);
        ps_span_set_number(span.trace_id + 8, id[1]);
        ps_span_set_number(span.span_id, id[2]);
        char text[PS_TRACEPARENT_BUFFER + 1], expected[PS_TRACEPARENT_BUFFER + 1];
        text[PS_TRACEPARENT_BUFFER] = '!';
        CHECK_EQUAL(snprintf(expected, sizeof(expected),
                             "00-%016" PRIx64 "%016" PRIx64 "-%016" PRIx64 "-%02x", id[0], id[1], id[2],
                             flags),
                    PS_TRACEPARENT_BUFFER - 1);
        CHECK_STRING(ps_span_text(text, &span), expected);
        CHECK_EQUAL(text[PS_TRACEPARENT_BUFFER], '!');
        ps_span read;
        CHECK(ps_span_of_header(&read, text, strlen(text)));
        span.flags &= PS_SPAN_FLAGS;
        CHECK(memcmp(&read, &span, sizeof(read)) == 0);
    }
}

static void a_number_has_its_highest_byte_first(void)
{
    uint8_t id[8];
    ps_span_set_number(id, 0x0102030405060708u);
    for (int i = 0; i < 8; i++) CHECK_EQUAL(id[i], i + 1);
    CHECK_EQUAL(ps_span_number(id), 0x0102030405060708u);
    ps_span_set_number(id, UINT64_MAX);
    CHECK_EQUAL(ps_span_number(id), UINT64_MAX);
    ps_span_set_number(id, 0);
    CHECK_EQUAL(ps_span_number(id), 0);
}

int main(void)
{
    RUN(takes_a_header_as_the_standard_has_it_and_no_other);
    RUN(reads_no_byte_after_the_header);
    RUN(no_span_has_no_text);
    RUN(the_text_is_what_was_read);
    RUN(writes_every_byte_and_no_more_than_its_buffer);
    RUN(a_number_has_its_highest_byte_first);
    return check_report("span");
}
