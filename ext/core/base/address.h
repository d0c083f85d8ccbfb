/*
 * The address that an object of the VM had. It may only be compared with others: the object may be
 * gone, so its memory must not be read. It is a struct because VALUE is an integer and PyObject *
 * is a pointer. So no function of either VM accepts it.
 */
#ifndef PS_ADDRESS_H
#define PS_ADDRESS_H

#include <stdbool.h>
#include <stdint.h>

typedef struct {
    uintptr_t value; /* 0: no object */
} ps_address;

/* object: a VALUE or a pointer. */
#define PS_ADDRESS(object) ((ps_address){(uintptr_t)(object)})
#define PS_NO_ADDRESS      ((ps_address){0})

static inline bool ps_address_known(ps_address address)
{
    return address.value != 0;
}

static inline bool ps_address_equal(ps_address one, ps_address other)
{
    return one.value == other.value;
}

/* A number below 2^bits, to spread addresses over a table of that size. */
static inline uint32_t ps_address_hash(ps_address address, unsigned bits)
{
    return (uint32_t)((address.value >> 4) * 0x9e3779b97f4a7c15u >> (64 - bits));
}

#endif
