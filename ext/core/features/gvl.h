/* Waits for the VM lock: gvl__wait, which the hooks of the VM fire. */
#ifndef PS_GVL_H
#define PS_GVL_H

#include "table/feature.h"

extern const ps_feature ps_gvl_feature;

#endif
