/* Collections of garbage: gc__start and gc__done, which the hooks of the VM fire. */
#ifndef PS_COLLECTIONS_H
#define PS_COLLECTIONS_H

#include "table/feature.h"

extern const ps_feature ps_collections_feature;

#endif
