#include "features/gvl.h"

#include "usdt/looking.h"

const ps_feature ps_gvl_feature = {
    .probes = PS_BIT(GVL__WAIT),
    .kinds = 1u << PS_LOOK_LOCK,
};
