/*
 * What the hooks keep of the VM for longer than an event. Each file declares it with PS_KEPT(), and
 * one function walks all that is kept. `rake lint:kept` finds an object in a static variable that is
 * not declared. Builds with PS_CHECKS (the C tests, memcheck) abort in ps_keep() at a place that is
 * not declared.
 *
 * All functions are called with the VM lock.
 */
#ifndef PS_KEPT_H
#define PS_KEPT_H

#include <stddef.h>
#include <stdint.h>

enum ps_kept_how {
    PS_KEPT_HELD,     /* objects (VALUE, PyObject *): alive as long as they are here */
    PS_KEPT_COMPARED, /* addresses, and what is known of the objects there: zeroed at each collection */
    /*
     * Addresses that stay over a collection. The declaration says why a comparison is right
     * although another object may have the address since.
     */
    PS_KEPT_LASTING,
};

typedef struct ps_kept {
    enum ps_kept_how how;
    void *first;
    size_t count, size; /* the number of elements, and the bytes from one to the next */
    /* For objects that are in no array: calls visit() with the place of each. Else NULL. */
    void (*each)(void (*visit)(void *place));
} ps_kept;

/* One object; an array of objects; a field of each struct in an array; what is in no array. */
#define PS_HELD(place)                                                                                       \
    {                                                                                                        \
        PS_KEPT_HELD, &(place), 1, sizeof(place), NULL                                                       \
    }
#define PS_HELD_ALL(array)                                                                                   \
    {                                                                                                        \
        PS_KEPT_HELD, (array), sizeof(array) / sizeof((array)[0]), sizeof((array)[0]), NULL                  \
    }
#define PS_HELD_FIELD(array, field)                                                                          \
    {                                                                                                        \
        PS_KEPT_HELD, &(array)[0].field, sizeof(array) / sizeof((array)[0]), sizeof((array)[0]), NULL        \
    }
#define PS_HELD_EACH(each)                                                                                   \
    {                                                                                                        \
        PS_KEPT_HELD, NULL, 0, 0, each                                                                       \
    }
/* A variable or a whole array. */
#define PS_COMPARED(place)                                                                                   \
    {                                                                                                        \
        PS_KEPT_COMPARED, &(place), 1, sizeof(place), NULL                                                   \
    }
#define PS_LASTING(place)                                                                                    \
    {                                                                                                        \
        PS_KEPT_LASTING, &(place), 1, sizeof(place), NULL                                                    \
    }

/*
 * At the top level of a file, once, after the variables that it names: declares what the file keeps.
 * A constructor registers the declarations when the library is loaded.
 *
 *   static VALUE hook = Qnil, class_of_sets = Qnil;
 *   PS_KEPT(PS_HELD(hook), PS_HELD(class_of_sets))
 */
#define PS_KEPT(...)                                                                                         \
    __attribute__((constructor)) static void register_what_is_kept(void)                                     \
    {                                                                                                        \
        static const ps_kept declared[] = {__VA_ARGS__};                                                     \
        static ps_kept_list list = {declared, sizeof(declared) / sizeof(declared[0]), NULL};                 \
        ps_kept_register(&list);                                                                             \
    }

typedef struct ps_kept_list {
    const ps_kept *kept;
    size_t count;
    struct ps_kept_list *next;
} ps_kept_list;
/* The list stays where it is. */
void ps_kept_register(ps_kept_list *list);

/*
 * Called before anything is kept. retain, release: count references to an object. NULL: the VM marks
 * objects and counts no references.
 */
void ps_kept_init(void (*retain)(uintptr_t object), void (*release)(uintptr_t object));

/*
 * Stores an object in a declared place, and releases the object that was there. The place is a
 * VALUE or a pointer to an object. No object: Qnil or NULL. Not in a hook inside the allocator or
 * the collector: a release may run code.
 */
#define PS_KEEP(place, object) ps_keep(&(place), (uintptr_t)(object))
void ps_keep(void *place, uintptr_t object);

/* Calls visit() with the place of each object that is held. Inside a collection, too. */
void ps_kept_visit(void (*visit)(void *place));
/* Addresses may belong to other objects from now on: empties what is only compared. */
void ps_kept_collected(void);

#endif
