#include "features/lines.h"

#include "usdt/looking.h"

const ps_feature ps_lines_feature = {
    .probes = PS_BIT(LINE),
    .kinds = 1u << PS_LOOK_LINE,
};
