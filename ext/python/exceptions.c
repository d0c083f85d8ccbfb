/*
 * Exceptions: a row for each place that raises a type. What the traceback says: its last entry is where it was raised, its first
 * the frame that handles it, its length the depth.
 */
#include "exceptions.h"

#include "atomic.h"
#include "clock.h"
#include "probe.h"
#include "stats.h"

static struct {
    bool on;
    bool clearing;       /* the hooks are out, but the flush was reading the rows: clear them at the next try */
    uint64_t entry_cost; /* ticks that one entry of a traceback costs */
} exceptions;

bool ps_exceptions_is_noise(PyObject *exception)
{
    return PyErr_GivenExceptionMatches(exception, PyExc_StopIteration) ||
           PyErr_GivenExceptionMatches(exception, PyExc_StopAsyncIteration) ||
           PyErr_GivenExceptionMatches(exception, PyExc_GeneratorExit);
}

/* A row keeps its class and code object alive: their addresses must not come to mean others. */
static ps_row *make_row(PyTypeObject *type, PyCodeObject *code, PyFrameObject *frame, int lasti)
{
    ps_row *row = ps_table_row(&ps_exceptions, (uintptr_t)type, (uintptr_t)code, (uintptr_t)lasti);
    if (ps_row_is_overflow(&ps_exceptions, row) || row->site) return row;
    Py_INCREF(type);
    Py_INCREF(code);
    PyObject *globals = ps_frame_globals(frame);
    int line = PyCode_Addr2Line(code, lasti);
    PS_WRITE_RELEASE(row->at[PS_EXCEPTION_RAISED_IN], ps_code_site_at(code, globals, line));
    Py_XDECREF(globals);
    PS_WRITE_RELEASE(row->site, ps_type_site(type, code, line));
    return row;
}

static void let_go(void)
{
    for (uint32_t i = 0; i < ps_exceptions.rows; i++) {
        ps_row *row = ps_table_at(&ps_exceptions, i);
        if (!row->site) continue;
        Py_DECREF((PyObject *)row->key[0]);
        Py_DECREF((PyObject *)row->key[1]);
    }
}

ps_row *ps_exceptions_count(PyObject *exception)
{
    PyTracebackObject *entry = (PyTracebackObject *)((PyBaseExceptionObject *)exception)->traceback;
    if (!entry) return NULL;
    uint32_t depth = 1;
    for (; entry->tb_next; entry = entry->tb_next) depth++;
    PyCodeObject *code = ps_frame_code(entry->tb_frame);
    ps_row *row = make_row(Py_TYPE(exception), code, entry->tb_frame, entry->tb_lasti);
    Py_DECREF(code);

    PS_ADD(row->count[PS_EXCEPTION_COST], exceptions.entry_cost * depth);
    PS_ADD(row->count[PS_EXCEPTION_DEPTH], depth);
    if (depth > PS_READ(row->count[PS_EXCEPTION_DEPTH_MAX])) PS_WRITE(row->count[PS_EXCEPTION_DEPTH_MAX], depth);
    PS_ADD_LAST(row->count[PS_EXCEPTION_RAISED], 1);
    return row;
}

bool ps_exceptions_switch(uint32_t wanted)
{
    bool on = (wanted & PS_EXCEPTION_PROBES) != 0;
    if (on == exceptions.on && !exceptions.clearing) return true;
    if (on) {
        exceptions.on = ps_exceptions_hook(wanted);
        return true;
    }
    if (exceptions.on) ps_exceptions_hook(0);
    exceptions.on = false;
    exceptions.clearing = true;
    if (!ps_stats_try_lock()) return false;
    let_go();
    ps_table_clear(&ps_exceptions);
    ps_stats_unlock();
    exceptions.clearing = false;
    return true;
}
