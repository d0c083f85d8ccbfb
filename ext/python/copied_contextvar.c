#include "copied_contextvar.h"

#if PS_HAVE_GIL

#include "base/copy.h"

/*
 * As in Include/internal/pycore_context.h, pycore_hamt.h and Python/hamt.c, from 3.11 to 3.15. Each
 * level of the tree uses five bits of the variable's hash, the lowest first.
 */
enum { LEVEL_BITS = 5, CHILDREN = 1 << LEVEL_BITS, LEVELS = 7 };

struct context {
    PyObject_HEAD PyObject *previous;
    uintptr_t tree;
};

struct tree {
    PyObject_HEAD uintptr_t root;
};

/* A variable and its value. Without a variable, value is a node of the next level. */
struct pair {
    uintptr_t variable, value;
};

/* Has a pair for each bit that is set. */
struct bitmap_node {
    PyObject_VAR_HEAD uint32_t bitmap;
    struct pair pair[];
};

/* If a level has more than 16: all children, or NULL. */
struct array_node {
    PyObject_HEAD uintptr_t child[CHILDREN];
};

/* Immutable once the trial is over. The types of nodes have no public name. */
static struct {
    bool tried, works;
    uintptr_t variable;
    uint32_t hash;
    uintptr_t bitmap_type, array_type;
} known;

uintptr_t ps_copied_contextvar_tree(uintptr_t state)
{
    uintptr_t context, tree;
    if (!ps_copy(&context, (char *)state + offsetof(PyThreadState, context), sizeof(context)) || !context)
        return 0;
    return ps_copy(&tree, (char *)context + offsetof(struct context, tree), sizeof(tree)) ? tree : 0;
}

/* The beginning of a node of either kind. */
static bool read_node(struct bitmap_node *head, uintptr_t node)
{
    return node && ps_copy(head, (void *)node, sizeof(*head));
}

static uintptr_t type_of(const struct bitmap_node *head)
{
    return (uintptr_t)head->ob_base.ob_base.ob_type;
}

static uintptr_t read_root(uintptr_t tree)
{
    uintptr_t root;
    return tree && ps_copy(&root, (char *)tree + offsetof(struct tree, root), sizeof(root)) ? root : 0;
}

static bool read_pair(struct pair *pair, uintptr_t node, const struct bitmap_node *head, uint32_t digit)
{
    if (!(head->bitmap >> digit & 1)) return false;
    size_t i = (size_t)__builtin_popcount(head->bitmap & (((uint32_t)1 << digit) - 1));
    return ps_copy(pair, (char *)node + offsetof(struct bitmap_node, pair) + i * sizeof(*pair),
                   sizeof(*pair));
}

/*
 * A third kind of node is for variables whose hashes are the same in all bits: perhaps two in four
 * thousand million. It is not read.
 */
uintptr_t ps_copied_contextvar_value(uintptr_t tree)
{
    uintptr_t node = read_root(tree);
    uint32_t hash = known.hash;
    struct bitmap_node head;
    for (int level = 0; level < LEVELS && read_node(&head, node); level++, hash >>= LEVEL_BITS) {
        uint32_t digit = hash % CHILDREN;
        if (type_of(&head) == known.array_type) {
            char *at = (char *)node + offsetof(struct array_node, child) + digit * sizeof(node);
            if (!ps_copy(&node, at, sizeof(node))) return 0;
            continue;
        }
        struct pair pair;
        if (type_of(&head) != known.bitmap_type || !read_pair(&pair, node, &head, digit)) return 0;
        if (pair.variable) return pair.variable == known.variable ? pair.value : 0;
        node = pair.value;
    }
    return 0;
}

static uintptr_t own_tree(void)
{
    return ps_copied_contextvar_tree((uintptr_t)ps_thread_state());
}

static bool has(PyObject *value)
{
    return ps_copied_contextvar_value(own_tree()) == (uintptr_t)value;
}

static uintptr_t type_of_root(void)
{
    struct bitmap_node head;
    return read_node(&head, read_root(own_tree())) ? type_of(&head) : 0;
}

static bool set(PyObject *variable, PyObject *value)
{
    PyObject *token = variable ? PyContextVar_Set(variable, value) : NULL;
    Py_XDECREF(token);
    return token != NULL;
}

static bool set_another(void)
{
    PyObject *variable = PyContextVar_New("probescope.another", NULL);
    bool is_set = set(variable, Py_None);
    Py_XDECREF(variable);
    return is_set;
}

/*
 * Called in a context that has no other variable yet. With one variable the root is of one kind,
 * with many of the other.
 */
static bool is_found(PyObject *variable)
{
    enum { MANY = 64 };
    if (!set_another()) return false;
    known.bitmap_type = type_of_root();
    bool found = has(NULL) && set(variable, Py_True) && has(Py_True);
    for (int i = 0; found && i < MANY; i++) {
        if (!set_another()) return false;
        if (!known.array_type && type_of_root() != known.bitmap_type) known.array_type = type_of_root();
        found = has(Py_True);
    }
    return found && known.array_type && set(variable, Py_None) && has(Py_None);
}

/* Folds the hash as hamt_hash() of Python/hamt.c does. */
static bool learn_hash(PyObject *variable)
{
    Py_hash_t hash = PyObject_Hash(variable);
    if (hash == -1) return false;
    known.hash = (uint32_t)hash ^ (uint32_t)((uint64_t)hash >> 32);
    if (known.hash == UINT32_MAX) known.hash--;
    return true;
}

/*
 * In a context that is not entered, because watchers of contexts would be called. And without
 * collections, because finalizers of the application's would run in it.
 */
static bool try_in_own_context(PyObject *variable)
{
    PyThreadState *state = ps_thread_state();
    PyObject *context = PyContext_New(), *applications = state->context;
    if (!context) return false;
    int collects = PyGC_Disable();
    state->context = context;
    state->context_ver++;
    bool works = learn_hash(variable) && is_found(variable);
    state->context = applications;
    state->context_ver++;
    Py_DECREF(context);
    if (collects) PyGC_Enable();
    return works;
}

void ps_copied_contextvar_init(PyObject *variable)
{
    if (known.tried || !ps_copy_works()) return;
    ps_error error = ps_error_save();
    known.tried = true;
    known.variable = (uintptr_t)variable;
    known.works = try_in_own_context(variable);
    PyErr_Clear();
    ps_error_restore(error);
}

bool ps_copied_contextvar_works(void)
{
    return known.works;
}

#endif
