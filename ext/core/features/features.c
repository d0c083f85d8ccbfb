#include "table/feature.h"

#include <stddef.h>

#include "features/backtraces.h"
#include "features/call_paths.h"
#include "features/collections.h"
#include "features/exceptions.h"
#include "features/functions.h"
#include "features/gvl.h"
#include "features/lines.h"
#include "features/objects.h"
#include "features/requests.h"
#include "features/samples.h"
#include "features/waits.h"

/* clang-format off */
const ps_feature *const ps_features[] = {
    &ps_functions_feature,
    &ps_lines_feature,
    &ps_exceptions_feature,
    &ps_backtraces_feature,
    &ps_objects_feature,
    &ps_collections_feature,
    &ps_samples_feature,
    &ps_gvl_feature,
    &ps_requests_feature,
    &ps_waits_feature,
    &ps_call_paths_feature,
    NULL,
};
/* clang-format on */
