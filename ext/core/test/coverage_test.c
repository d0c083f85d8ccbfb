#include "features/coverage.h"

#include "check.h"

static const char *text_at(const void *list, size_t i)
{
    return ((const char *const *)list)[i];
}

static ps_strings strings(const char *a, const char *b)
{
    const char *list[] = {a, b};
    return ps_strings_copy(list, (size_t)(a != NULL) + (b != NULL), text_at);
}

static void copies_strings_up_to_a_null(void)
{
    char text[] = "/srv/app/";
    const char *list[] = {text, "/srv/lib/", "not copied"};
    ps_strings copies = ps_strings_copy(list, 2, text_at);
    text[0] = 'x';
    CHECK_STRING(copies[0], "/srv/app/");
    CHECK_STRING(copies[1], "/srv/lib/");
    CHECK(!copies[2]);
    ps_strings_free(copies);
    copies = ps_strings_copy(list, 0, text_at);
    CHECK(copies && !copies[0]);
    ps_strings_free(copies);
    ps_strings_free(NULL);
}

static void set(ps_strings patterns)
{
    ps_coverage_set(strings("/srv/app/", "/srv/lib/"), strings("/srv/app/.venv/", NULL),
                    strings("/srv/app/ours/", NULL), patterns, ".py");
}

static bool covers(const char *path, const char *name)
{
    return ps_coverage_function(path, name, false);
}

static void covers_the_applications_own_files(void)
{
    set(NULL);
    CHECK(covers("/srv/app/shop.py", "pay"));
    CHECK(covers("/srv/lib/x.py", "f"));
    CHECK(covers("shop.py", "pay")); /* started by a relative path */
    CHECK(!covers("/usr/lib/python3/json.py", "loads"));
    CHECK(!covers("/srv/app/.venv/lib/flask.py", "run"));
    CHECK(!covers("/srv/app/vendor/x.py", "f"));
    CHECK(!covers("/srv/app/ours/x.py", "f"));
    CHECK(!covers("<frozen importlib._bootstrap>", "f"));
    CHECK(!covers("", "f"));
    CHECK(!ps_coverage_by_name());
}

static void covers_everything_but_us_when_asked(void)
{
    set(NULL);
    CHECK(ps_coverage_function("/usr/lib/python3/json.py", "loads", true));
    CHECK(ps_coverage_function("<string>", "f", true));
    CHECK(!ps_coverage_function("/srv/app/ours/x.py", "f", true));
    CHECK(!ps_coverage_file("/srv/app/ours/x.py", true));
}

static void tells_patterns_of_paths_from_those_of_names(void)
{
    set(strings("*/models/*", "Shop.*"));
    CHECK(ps_coverage_by_name());
    CHECK(covers("/anywhere/models/a.py", "f"));
    CHECK(covers("/anywhere/b.py", "Shop.pay"));
    CHECK(!covers("/srv/app/b.py", "Cart.pay"));
    CHECK(!covers("/srv/app/Shop.x/b.txt", "f")); /* a pattern of names matches no path */
    CHECK(ps_coverage_file("/anywhere/b.py", false));
    set(strings("shop.py", NULL));
    CHECK(!ps_coverage_by_name());
    CHECK(covers("shop.py", "f"));
    CHECK(!ps_coverage_file("other.py", false));
}

static void matches_the_script_that_was_started_by_a_relative_path(void)
{
    set(strings("/srv/app/shop.py", "*/bin/*.py"));
    CHECK(covers("shop.py", "pay"));
    CHECK(covers("./shop.py", "pay"));
    CHECK(covers("bin/worker.py", "pay"));
    CHECK(!covers("other.py", "pay"));
    CHECK(!covers("<shop.py", "pay"));
    CHECK(!covers("", "pay"));
}

int main(void)
{
    RUN(copies_strings_up_to_a_null);
    RUN(covers_the_applications_own_files);
    RUN(covers_everything_but_us_when_asked);
    RUN(tells_patterns_of_paths_from_those_of_names);
    RUN(matches_the_script_that_was_started_by_a_relative_path);
    ps_coverage_set(NULL, NULL, NULL, NULL, "");
    return check_report("coverage");
}
