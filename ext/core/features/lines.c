#include "features/lines.h"

#include "usdt/looking.h"

const ps_feature ps_lines_feature = {
    .probes = PS_LINE_PROBES,
    .kinds = 1u << PS_LOOK_LINE,
};
