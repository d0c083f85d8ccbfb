#include "provider.h"

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/atomic.h"
#include "provider_file.h"
#include "provider_image.h"
#include "provider_region.h"

enum { NAME_LENGTH = 127 };

typedef struct ps_provider {
    SDTProvider_t shown; /* first: users hold it */
    ps_region region;
    /* Of the loaded library: */
    size_t text, semaphores, mapped;
    uint64_t digest;
    unsigned number;
    char path[PS_FILE_PATH]; /* empty: in memory */
    struct ps_provider *next, **link;
} ps_provider;

static ps_provider *all_loaded;

/* Held by every function that creates, loads, unloads or destroys; never by one that fires. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static const volatile uint16_t nobody;

static void take_lock(void)
{
    pthread_mutex_lock(&lock);
}

static void give_lock(void)
{
    pthread_mutex_unlock(&lock);
}

static bool fork_registered; /* else a child could inherit the lock, and no provider is made */

/*
 * Registered when the library is loaded, so before the handlers of its users. Handlers that run
 * before a fork run in the reverse order: a user's handler may wait for a thread that unloads a
 * provider.
 */
__attribute__((constructor)) static void register_fork(void)
{
    fork_registered = pthread_atfork(take_lock, give_lock, give_lock) == 0;
}

__attribute__((format(printf, 3, 4))) static int fail(SDTProvider_t *provider, SDTError_t error,
                                                      const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    free(provider->error);
    if (vasprintf(&provider->error, format, arguments) < 0) provider->error = NULL;
    va_end(arguments);
    provider->lastError = error;
    return -1;
}

/* True for names that every tracer accepts. */
static bool is_name(const char *name)
{
    size_t length = name ? strnlen(name, NAME_LENGTH + 1) : 0;
    if (length == 0 || length > NAME_LENGTH) return false;
    return strspn(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-.+") == length;
}

static bool is_type(ArgType_t type)
{
    switch ((int)type) {
    case uint8:
    case int8:
    case uint16:
    case int16:
    case uint32:
    case int32:
    case uint64:
    case int64:
    case sdtDouble:
    case sdtString: return true;
    default: return false;
    }
}

SDTProvider_t *providerInit(const char *name)
{
    ps_provider *provider = name && fork_registered ? calloc(1, sizeof(*provider)) : NULL;
    if (!provider) return NULL;
    provider->shown.lastError = noError;
    provider->shown._memfd = -1;
    provider->shown.name = strdup(name);
    if (provider->shown.name) return &provider->shown;
    free(provider);
    return NULL;
}

int providerUseMemfd(SDTProvider_t *provider, const MemFDOption_t use_memfd)
{
    if (!provider) return 0;
    take_lock();
    bool unloaded = !provider->_handle;
    if (unloaded) provider->_use_memfd = use_memfd;
    give_lock();
    return unloaded;
}

static ps_provider_probe *make_probe(SDTProvider_t *provider, const char *name, int count,
                                     const ArgType_t *types)
{
    ps_provider_probe *probe = calloc(1, sizeof(*probe));
    char *copy = probe ? strdup(name) : NULL;
    if (!copy) {
        free(probe);
        return NULL;
    }
    probe->semaphore = &nobody;
    probe->node.probe.name = copy;
    probe->node.probe.provider = provider;
    probe->node.probe.argCount = count;
    for (int i = 0; i < count; i++) {
        probe->types[i] = types[i];
        if (i < MAX_ARGUMENTS) probe->node.probe.argFmt[i] = types[i];
        if (types[i] == sdtDouble) probe->doubles |= (uint16_t)(1u << i);
        if (types[i] == sdtString) probe->strings |= (uint16_t)(1u << i);
    }
    return probe;
}

static int refuse_probe(SDTProvider_t *provider, const char *name, int count, int most)
{
    if (provider->_handle)
        return fail(provider, providerLoadedError, "provider %s is loaded: unload it to add probes",
                    provider->name);
    if (!is_name(name))
        return fail(provider, invalidNameError, "no name for a probe: 1 to %d of A-Z a-z 0-9 _ - . +",
                    NAME_LENGTH);
    if (count < 0 || count > most)
        return fail(provider, invalidArgumentsError, "probe %s has %d arguments: 0 to %d are possible", name,
                    count, most);
    return 0;
}

static SDTProbe_t *add_probe(SDTProvider_t *provider, const char *name, int count, const ArgType_t *types)
{
    for (int i = 0; i < count; i++) {
        if (is_type(types[i])) continue;
        fail(provider, invalidArgumentsError, "argument %d of probe %s has a type that does not exist: %d", i,
             name, (int)types[i]);
        return NULL;
    }
    ps_provider_probe *probe = make_probe(provider, name, count, types);
    if (!probe) {
        fail(provider, elfCreationError, "no memory for probe %s", name);
        return NULL;
    }
    probe->node.next = provider->probes;
    provider->probes = &probe->node;
    return &probe->node.probe;
}

SDTProbe_t *providerAddProbeArray(SDTProvider_t *provider, const char *name, int argCount,
                                  const ArgType_t *types)
{
    if (!provider) return NULL;
    take_lock();
    SDTProbe_t *probe = NULL;
    if (refuse_probe(provider, name, argCount, SDT_MAX_ARGUMENTS) == 0)
        probe = add_probe(provider, name, argCount, types);
    give_lock();
    return probe;
}

SDTProbe_t *providerAddProbe(SDTProvider_t *provider, const char *name, int argCount, ...)
{
    if (!provider) return NULL;
    take_lock();
    SDTProbe_t *probe = NULL;
    if (refuse_probe(provider, name, argCount, MAX_ARGUMENTS) == 0) {
        ArgType_t types[MAX_ARGUMENTS];
        va_list arguments;
        va_start(arguments, argCount);
        for (int i = 0; i < argCount; i++) types[i] = (ArgType_t)va_arg(arguments, int);
        va_end(arguments);
        probe = add_probe(provider, name, argCount, types);
    }
    give_lock();
    return probe;
}

static unsigned number_of(uint64_t digest)
{
    unsigned number = 0;
    for (const ps_provider *other = all_loaded; other; other = other->next)
        if (other->digest == digest && other->number >= number) number = other->number + 1;
    return number;
}

/* Maps the image from the first place that works. /tmp may be mounted read-only or noexec. */
static uint8_t *map_somewhere(ps_provider *provider, const ps_image *image)
{
    SDTProvider_t *shown = &provider->shown;
    bool made = false;
    int error = 0;
    for (int place = shown->_use_memfd == memfd_enabled ? PS_FILE_IN_MEMORY : 0; place < PS_FILE_PLACES;
         place++) {
        int file = ps_file_open(provider->path, (enum ps_file_place)place, shown->name, provider->digest,
                                provider->number, image->bytes, image->size);
        if (file < 0) {
            if (!made) error = errno;
            continue;
        }
        uint8_t *start = ps_region_map(&provider->region, image, file);
        if (!start) error = errno;
        made = true;
        /* Older tracers find a library in memory by its descriptor. */
        if (start && place == PS_FILE_IN_MEMORY) shown->_memfd = file;
        else close(file);
        if (start) return start;
        ps_file_leave(provider->path);
    }
    if (made)
        fail(shown, sharedLibraryOpenError, "cannot map the library of provider %s: %s", shown->name,
             strerror(error));
    else
        fail(shown, tmpCreationError, "no place for the library of provider %s: %s", shown->name,
             strerror(error));
    return NULL;
}

static int load_image(ps_provider *provider, const ps_image *image, const ps_image_probe *probes)
{
    provider->digest = image->digest;
    provider->number = number_of(provider->digest);
    uint8_t *start = map_somewhere(provider, image);
    if (!start) return -1;
    provider->text = image->text;
    provider->semaphores = image->semaphores;
    provider->mapped = image->mapped;
    provider->link = &all_loaded;
    provider->next = all_loaded;
    if (all_loaded) all_loaded->link = &provider->next;
    all_loaded = provider;
    SDTProvider_t *shown = &provider->shown;
    shown->_handle = start;
    shown->_filename = provider->path[0] ? provider->path : NULL;
    for (SDTProbeList_t *node = shown->probes; node; node = node->next, probes++) {
        PS_WRITE_RELEASE(node->probe._fire, (void *)(start + probes->site));
        PS_WRITE_RELEASE(((ps_provider_probe *)node)->semaphore,
                         (const volatile uint16_t *)(start + probes->semaphore));
    }
    return 0;
}

static int load(ps_provider *provider)
{
    SDTProvider_t *shown = &provider->shown;
    if (strchr(shown->name, '/'))
        return fail(shown, tmpCreationError, "a provider's name cannot have a '/': %.200s", shown->name);
    if (!is_name(shown->name))
        return fail(shown, invalidNameError, "no name for a provider: 1 to %d of A-Z a-z 0-9 _ - . +",
                    NAME_LENGTH);
    size_t count = 0, i = 0;
    for (SDTProbeList_t *node = shown->probes; node; node = node->next) count++;
    ps_image_probe *probes = calloc(count + 1, sizeof(*probes));
    for (SDTProbeList_t *node = probes ? shown->probes : NULL; node; node = node->next)
        probes[i++] = (ps_image_probe){node->probe.name, ((ps_provider_probe *)node)->types,
                                       node->probe.argCount, 0, 0};
    ps_image image;
    int result = -1;
    if (probes && ps_image_make(&image, shown->name, probes, count)) {
        result = load_image(provider, &image, probes);
        ps_image_free(&image);
    } else {
        fail(shown, elfCreationError, "no memory for the library of provider %s", shown->name);
    }
    free(probes);
    return result;
}

int providerLoad(SDTProvider_t *provider)
{
    if (!provider) return -1;
    take_lock();
    int result = provider->_handle ? 0 : load((ps_provider *)provider);
    give_lock();
    return result;
}

/*
 * A program that becomes a daemon may have closed this descriptor, and its number may belong to
 * another file by now.
 */
static void close_memory(SDTProvider_t *provider)
{
    struct stat status;
    char target[64] = "", link[64];
    snprintf(link, sizeof(link), "/proc/self/fd/%d", provider->_memfd);
    if (provider->_memfd >= 0 && fstat(provider->_memfd, &status) == 0 &&
        readlink(link, target, sizeof(target) - 1) > 0 &&
        strncmp(target, "/memfd:libstapsdt:", strlen("/memfd:libstapsdt:")) == 0)
        close(provider->_memfd);
    provider->_memfd = -1;
}

/*
 * First, threads are no longer sent to the sites. A thread that is already on its way finds them
 * covered.
 */
static void unload(ps_provider *provider)
{
    SDTProvider_t *shown = &provider->shown;
    if (!shown->_handle) return;
    for (SDTProbeList_t *node = shown->probes; node; node = node->next) {
        PS_WRITE_RELEASE(((ps_provider_probe *)node)->semaphore, &nobody);
        PS_WRITE_RELEASE(node->probe._fire, NULL);
    }
    bool covered = ps_region_cover(&provider->region, provider->text, provider->semaphores, provider->mapped);
    ps_file_leave(provider->path);
    if (covered) provider->path[0] = '\0';
    close_memory(shown);
    shown->_handle = NULL;
    shown->_filename = NULL;
    *provider->link = provider->next;
    if (provider->next) provider->next->link = provider->link;
}

/* Unloads what is still loaded when the process exits. Other threads may still fire. */
__attribute__((destructor)) static void leave_no_file(void)
{
    if (pthread_mutex_trylock(&lock) != 0) return;
    while (all_loaded) unload(all_loaded);
    pthread_mutex_unlock(&lock);
}

int providerUnload(SDTProvider_t *provider)
{
    if (!provider) return 0;
    take_lock();
    unload((ps_provider *)provider);
    give_lock();
    return 0;
}

void providerDestroy(SDTProvider_t *provider)
{
    ps_provider *own = (ps_provider *)provider;
    if (!provider) return;
    providerUnload(provider);
    ps_region_free(&own->region);
    ps_file_leave(own->path); /* a library that could not be covered used the file until now */
    for (SDTProbeList_t *node = provider->probes, *next; node; node = next) {
        next = node->next;
        free(node->probe.name);
        free(node);
    }
    free(provider->error);
    free(provider->name);
    free(own);
}

const char *providerPath(const SDTProvider_t *provider)
{
    return provider ? provider->_filename : NULL;
}
