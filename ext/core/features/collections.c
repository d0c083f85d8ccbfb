#include "features/collections.h"

#include "usdt/looking.h"

const ps_feature ps_collections_feature = {
    .probes = PS_BIT(GC__START) | PS_BIT(GC__DONE),
    .kinds = 1u << PS_LOOK_COLLECTION,
};
