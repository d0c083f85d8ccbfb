/*
 * Call paths: what the frames of a stack are, from the outermost one to the innermost one, with
 * figures for each path, thread and request. A path is a node in a tree of frames: the frame and its
 * parent. While a tracer listens to stack__frame, each flush fires the frames of the paths that grew
 * since the last flush, parents first, and then what each path grew by, with the probe of its kind.
 *
 * The id of a frame is made from names, lines and the parent's id. So it is the same in each process
 * of a program and after a restart of the process or of the tracer.
 */
#ifndef PS_CALL_PATHS_H
#define PS_CALL_PATHS_H

#include <stdbool.h>
#include <stdint.h>

#include "table/feature.h"
#include "table/interned_strings.h"

enum { PS_PATHS_MAX = 65536, PS_PATH_CELLS_MAX = 16384 };

/* What the figures of a path are. Each kind has a probe. */
enum ps_path_kind { PS_PATH_CPU, PS_PATH_KINDS };

typedef struct ps_path ps_path;

extern const ps_feature ps_call_paths_feature;

/*
 * Returns the path that goes on from `parent` to this frame. parent: NULL for the outermost frame.
 * line: the line that runs or calls, or 0. what: the frame is no function, but names what the
 * figures are about. Without memory, or above PS_PATHS_MAX, returns the path "(overflow)". Such
 * figures are counted as dropped. Called with the VM lock.
 */
ps_path *ps_path_child(ps_path *parent, const ps_site *site, uint32_t line, bool what);
/*
 * Adds to the figures of a path. looked: the number of stacks that were read for these figures.
 * request: the request's site, or ps_site_none. Called with the VM lock.
 */
void ps_paths_add(enum ps_path_kind kind, ps_path *path, uint64_t thread_id, const ps_site *request,
                  uint64_t count, uint64_t weight, uint64_t looked);

/* False until a tracer that listens to stack__frame has its hooks in, and after it has left. */
bool ps_paths_are_on(void);

/*
 * For the VM's hooks of the feature. Forgets the paths that did not grow since the last flush, when
 * most of the room is used, or when there was no memory for another path.
 */
bool ps_paths_need_upkeep(void);
void ps_paths_upkeep(void);

#endif
