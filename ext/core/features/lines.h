/* Lines: line, which the hooks of the VM fire. */
#ifndef PS_LINES_H
#define PS_LINES_H

#include "table/feature.h"

extern const ps_feature ps_lines_feature;

#endif
