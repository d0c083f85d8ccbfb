/*
 * Requests for python/probescope/requests.py and the hooks of job libraries:
 * probescope._native.Request, and the current request of each context (contextvars). Slow calls and
 * details of exceptions carry the trace context of the current request.
 */
#include "hooks.h"

#include "base/copy.h"
#include "calls/here.h"
#include "context/vm.h"
#include "features/requests.h"
#include "copied_contextvar.h"

typedef struct Request {
    PyObject_HEAD uint64_t number; /* no other request ever has it; unused without a GIL */
    struct Request *next;          /* the next living request in the same place */
    ps_request request;
} Request;

static PyTypeObject request_type;
static PyObject *current; /* a ContextVar */
PS_KEPT(PS_HELD(current))

/*
 * The bytes of a str, which are kept with the str, or of bytes. No text for other types, and for a
 * str that has no UTF-8.
 */
static ps_text text_of(PyObject *value)
{
    Py_ssize_t size = 0;
    const char *bytes = NULL;
    if (PyBytes_Check(value)) bytes = PyBytes_AS_STRING(value), size = PyBytes_GET_SIZE(value);
    else if (PyUnicode_Check(value)) bytes = PyUnicode_AsUTF8AndSize(value, &size);
    if (PyErr_Occurred()) PyErr_Clear();
    return (ps_text){bytes, (size_t)size};
}

#if PS_HAVE_GIL
/*
 * Samples name requests by their numbers: a request may be gone when its samples are taken from the
 * queue (stacks.h). Requests that ended last are remembered with their labels, for longer than a
 * sample waits: ending a request takes the GIL, as taking samples does.
 */
enum { PLACES = 1024, ENDED = 4096 };
static struct {
    uint64_t last; /* the last number */
    Request *living[PLACES];
    struct {
        uint64_t number;
        const ps_site *label, *here;
    } ended[ENDED];
    uint32_t generation; /* of these sites (ps_sites_generation) */
} requests;

static void note_start(Request *request)
{
    request->number = ++requests.last;
    Request **place = &requests.living[request->number % PLACES];
    request->next = *place;
    *place = request;
}

static void forget_stale_labels(void)
{
    if (PS_LIKELY(requests.generation == ps_sites_generation)) return;
    requests.generation = ps_sites_generation;
    memset(requests.ended, 0, sizeof(requests.ended));
}

static void note_end(Request *request)
{
    Request **at = &requests.living[request->number % PLACES];
    while (*at != request) at = &(*at)->next;
    *at = request->next;
    ps_counted *counted = &request->request.counted;
    if (!counted->label || counted->generation != ps_sites_generation) return;
    forget_stale_labels();
    requests.ended[request->number % ENDED].number = request->number;
    requests.ended[request->number % ENDED].label = counted->label;
    requests.ended[request->number % ENDED].here =
        PS_ENABLED(STATS__BY_REQUEST) ? ps_request_label(counted) : counted->label;
}
#else
static void note_start(Request *request) {}
static void note_end(Request *request) {}
#endif

static PyObject *request_new(PyTypeObject *type, PyObject *given, PyObject *named)
{
    PyObject *method, *path, *header, *scheme = Py_None;
    if (!PyArg_ParseTuple(given, "OOO|O", &method, &path, &header, &scheme)) return NULL;
    Request *request = PyObject_New(Request, type);
    if (!request) return NULL;
    ps_request_start(&request->request, text_of(method), text_of(path), text_of(scheme), text_of(header));
    note_start(request);
    return (PyObject *)request;
}

static PyObject *request_done(PyObject *self, PyObject *arguments)
{
    unsigned long long status;
    PyObject *template;
    if (!PyArg_ParseTuple(arguments, "KO", &status, &template)) return NULL;
    ps_turn turn;
    ps_turn_begin(&turn);
    ps_request_done(&((Request *)self)->request, text_of(template), status);
    ps_turn_end(&turn);
    Py_RETURN_NONE;
}

static PyObject *request_start_job(PyObject *type, PyObject *given)
{
    PyObject *name, *header, *system, *queue;
    if (!PyArg_ParseTuple(given, "OOOO", &name, &header, &system, &queue)) return NULL;
    Request *request = PyObject_New(Request, (PyTypeObject *)type);
    if (!request) return NULL;
    ps_turn turn;
    ps_turn_begin(&turn);
    ps_request_start_job(&request->request, text_of(name), text_of(header), text_of(system), text_of(queue));
    ps_turn_end(&turn);
    note_start(request);
    return (PyObject *)request;
}

static PyMethodDef request_methods[] = {
    {"start_job", request_start_job, METH_VARARGS | METH_CLASS,
     "start_job(name, traceparent, system, queue, /)\n--\n\nThe same for a job. queue: the job's queue, or "
     "None."},
    {"done", request_done, METH_VARARGS,
     "done($self, status, template, /)\n--\n\nFires request__done, once. template: the route's template, "
     "or None."},
    {NULL, NULL, 0, NULL},
};

static void request_dealloc(PyObject *self)
{
    ps_turn turn;
    ps_turn_begin(&turn);
    ps_request_forget(&((Request *)self)->request);
    note_end((Request *)self);
    ps_turn_end(&turn);
    PyObject_Free(self);
}

static PyTypeObject request_type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "probescope._native.Request",
    .tp_basicsize = sizeof(Request),
    .tp_dealloc = request_dealloc,
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_doc = "Request(method, path, traceparent, scheme=None, /)\n--\n\nFires request__start. traceparent: "
              "str or bytes; a malformed one is ignored.",
    .tp_methods = request_methods,
    .tp_new = request_new,
};

PyObject *ps_requests_are_wanted(PyObject *module, PyObject *unused)
{
    return PyBool_FromLong(ps_requests_wanted());
}

PyObject *ps_tell_of_requests(PyObject *module, PyObject *unused)
{
    ps_requests_told();
    Py_RETURN_NONE;
}

PyObject *ps_enter_request(PyObject *module, PyObject *request)
{
    PyObject *outer = NULL;
    if (PyContextVar_Get(current, Py_None, &outer) < 0) return NULL;
    PyObject *token = PyContextVar_Set(current, request);
    Py_XDECREF(token);
    if (!token) Py_CLEAR(outer);
    if (PS_UNLIKELY(PS_READ(ps_here_requests))) {
        ps_turn turn;
        ps_turn_begin(&turn);
        ps_current_stack(); /* tells the request */
        ps_turn_end(&turn);
    }
    return outer;
}

/* The context keeps the request alive. */
static ps_request *now(void)
{
    PyObject *request = NULL;
    if (!current || PyContextVar_Get(current, NULL, &request) < 0 || !request) return NULL;
    Py_DECREF(request);
    return Py_TYPE(request) == &request_type ? &((Request *)request)->request : NULL;
}

ps_request *ps_vm_request(void)
{
    ps_error error = ps_error_save();
    ps_request *request = now();
    ps_error_restore(error);
    return request;
}

ps_counted *ps_requests_counted_now(void)
{
    ps_request *request = now();
    return request ? &request->counted : NULL;
}

ps_counted *ps_requests_counted_of(PyThreadState *thread)
{
    if (!PS_ENABLED(STATS__BY_REQUEST) || !thread->context || !current) return NULL;
    if (PySequence_Contains(thread->context, current) != 1) return NULL;
    PyObject *request = PyObject_GetItem(thread->context, current);
    if (!request) return NULL;
    Py_DECREF(request);
    return Py_TYPE(request) == &request_type ? &((Request *)request)->request.counted : NULL;
}

#if PS_HAVE_GIL
void ps_requests_prepare(void)
{
    ps_copied_contextvar_init(current);
}

uint64_t ps_requests_read(uintptr_t tree)
{
    struct {
        PyObject_HEAD uint64_t number;
    } head;
    _Static_assert(offsetof(Request, number) == sizeof(PyObject), "they begin alike");
    uintptr_t request = ps_copied_contextvar_value(tree);
    if (!request || !ps_copy(&head, (void *)request, sizeof(head))) return 0;
    return head.ob_base.ob_type == &request_type ? head.number : 0;
}

ps_counted *ps_requests_counted_numbered(uint64_t number)
{
    static ps_counted ended;
    if (!number || !PS_ENABLED(STATS__BY_REQUEST)) return NULL;
    for (Request *at = requests.living[number % PLACES]; at; at = at->next)
        if (at->number == number) return &at->request.counted;
    forget_stale_labels();
    if (requests.ended[number % ENDED].number != number) return NULL;
    ended = (ps_counted){.label = requests.ended[number % ENDED].label,
                         .generation = requests.generation,
                         .here = requests.ended[number % ENDED].here,
                         .here_generation = requests.generation};
    return &ended;
}
#endif

int ps_requests_init(PyObject *module)
{
    if (!current) PS_KEEP_NEW(current, PyContextVar_New("probescope.request", NULL));
    if (!current) return -1;
    return ps_add_type(module, "Request", &request_type);
}
