#include "base/random.h"
#include "check.h"

static void differs_from_number_to_number(void)
{
    uint32_t state = 1, before = 0;
    int same = 0, zeros = 0;
    for (int i = 0; i < 100000; i++) {
        uint32_t number = ps_random(&state);
        same += number == before;
        zeros += number == 0;
        before = number;
    }
    CHECK_EQUAL(same, 0);
    CHECK_EQUAL(zeros, 0);
}

static void varies_a_period_by_a_tenth(void)
{
    enum { PERIOD = 1000 };
    uint32_t state = 12345;
    uint64_t least = UINT64_MAX, most = 0, sum = 0;
    for (int i = 0; i < 100000; i++) {
        uint64_t period = ps_jittered(PERIOD, &state);
        least = period < least ? period : least;
        most = period > most ? period : most;
        sum += period;
    }
    CHECK_EQUAL(least, 900);
    CHECK_EQUAL(most, 1099);
    CHECK(sum / 100000 >= 995 && sum / 100000 <= 1004);
}

int main(void)
{
    RUN(differs_from_number_to_number);
    RUN(varies_a_period_by_a_tenth);
    return check_report("random");
}
