/* A CUDA driver without a device: memory is the host's, copies are memcpy, launches are lines in a log.
 *
 * Built by the tests as libcuda.so.1. Environment:
 *   STUB_LOG=path               one line per call, with what matters of its arguments
 *   STUB_FAIL=name:status[@n]   that function returns the status, from its n-th call on; several, comma separated
 *   STUB_DEVICES=1  STUB_CAPABILITY=9.0  STUB_DRIVER=12080  STUB_MEMORY=bytes of device memory
 *   STUB_MISSING=name           a kernel that no module has
 *   STUB_DELAY=milliseconds     that cuInit takes
 *   STUB_TOKENS=most            that graphs of a decode loop make, all together
 * It refuses what the real one refuses or hangs at: calls without a context, overlapping registrations, private mappings.
 */
#include <fcntl.h>
#include <sched.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

typedef unsigned long long u64;
typedef const char *text;

enum { INVALID_VALUE = 1, OUT_OF_MEMORY = 2, NOT_INITIALIZED = 3, NO_DEVICE = 100, INVALID_DEVICE = 101, INVALID_IMAGE = 200,
       INVALID_CONTEXT = 201, INVALID_HANDLE = 400, NOT_FOUND = 500, ALREADY_REGISTERED = 712, NOT_REGISTERED = 713 };

static text setting(text name, text otherwise) {
    text value = getenv(name);
    return value ? value : otherwise;
}

static void note(text format, ...) {
    static int out = -2;
    char line[1024];
    va_list more;
    if (out == -2) out = getenv("STUB_LOG") ? open(getenv("STUB_LOG"), O_WRONLY | O_CREAT | O_APPEND, 0600) : -1;
    if (out < 0) return;
    va_start(more, format);
    int n = vsnprintf(line, sizeof line - 1, format, more);
    va_end(more);
    line[n++] = '\n';
    if (write(out, line, n) != n) abort();
}

/* The status that STUB_FAIL wants for the n-th call of `name`. */
static int wanted(text name, int n) {
    size_t length = strlen(name);
    for (text at = setting("STUB_FAIL", ""); *at; at = strchr(at, ',') ? strchr(at, ',') + 1 : "") {
        if (strncmp(at, name, length) == 0 && at[length] == ':') {
            char *rest;
            int status = strtol(at + length + 1, &rest, 10);
            if (*rest != '@' || n >= atoi(rest + 1)) return status;
        }
    }
    return 0;
}

static int initialised;
static __thread void *current;

#define CALL(name, format, ...)                                              \
    static int calls_;                                                       \
    int n_ = __atomic_add_fetch(&calls_, 1, __ATOMIC_SEQ_CST);               \
    note(name " " format, ##__VA_ARGS__);                                    \
    int status_ = wanted(name, n_);                                          \
    if (status_) return status_
#define STARTED if (!initialised) return NOT_INITIALIZED
#define CONTEXT if (!current) return INVALID_CONTEXT

/* ---- driver and devices ---- */

int cuInit(unsigned flags) {
    CALL("cuInit", "%u connections=%s visible=%s", flags, setting("CUDA_DEVICE_MAX_CONNECTIONS", "-"), setting("CUDA_VISIBLE_DEVICES", "-"));
    int delay = atoi(setting("STUB_DELAY", "0"));
    struct timespec t = {delay / 1000, delay % 1000 * 1000000L};
    nanosleep(&t, 0);
    if (atoi(setting("STUB_DEVICES", "1")) == 0) return NO_DEVICE;
    initialised = 1;
    return 0;
}

int cuDriverGetVersion(int *version) {
    CALL("cuDriverGetVersion", "");
    *version = atoi(setting("STUB_DRIVER", "12080"));
    return 0;
}

int cuGetErrorName(int status, text *name) {
    static const struct { int status; text name; } names[] = {
        {1, "CUDA_ERROR_INVALID_VALUE"}, {2, "CUDA_ERROR_OUT_OF_MEMORY"}, {3, "CUDA_ERROR_NOT_INITIALIZED"}, {100, "CUDA_ERROR_NO_DEVICE"},
        {200, "CUDA_ERROR_INVALID_IMAGE"}, {201, "CUDA_ERROR_INVALID_CONTEXT"}, {209, "CUDA_ERROR_NO_BINARY_FOR_GPU"},
        {222, "CUDA_ERROR_UNSUPPORTED_PTX_VERSION"}, {500, "CUDA_ERROR_NOT_FOUND"}, {700, "CUDA_ERROR_ILLEGAL_ADDRESS"},
        {712, "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED"}, {719, "CUDA_ERROR_LAUNCH_FAILED"}, {801, "CUDA_ERROR_NOT_SUPPORTED"},
        {803, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH"}, {999, "CUDA_ERROR_UNKNOWN"}};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (names[i].status == status) { *name = names[i].name; return 0; }
    *name = 0;
    return INVALID_VALUE;
}

int cuDeviceGetCount(int *count) {
    CALL("cuDeviceGetCount", "");
    STARTED;
    *count = atoi(setting("STUB_DEVICES", "1"));
    return 0;
}

int cuDeviceGet(int *device, int ordinal) {
    CALL("cuDeviceGet", "%d", ordinal);
    STARTED;
    if (ordinal < 0 || ordinal >= atoi(setting("STUB_DEVICES", "1"))) return INVALID_DEVICE;
    *device = ordinal;
    return 0;
}

int cuDeviceGetName(char *name, int size, int device) {
    CALL("cuDeviceGetName", "%d", device);
    snprintf(name, size, "Stub GPU %d", device);
    return 0;
}

int cuDeviceGetUuid_v2(unsigned char *uuid, int device) {
    CALL("cuDeviceGetUuid_v2", "%d", device);
    memset(uuid, 0xA0 + device, 16);
    return 0;
}

int cuDeviceTotalMem_v2(size_t *bytes, int device) {
    CALL("cuDeviceTotalMem_v2", "%d", device);
    *bytes = strtoull(setting("STUB_MEMORY", "17179869184"), 0, 10);
    return 0;
}

int cuDeviceGetAttribute(int *value, int attribute, int device) {
    static int calls_;
    int status = device < 0 ? INVALID_DEVICE : wanted("cuDeviceGetAttribute", ++calls_);
    if (status) return status;
    STARTED;
    text capability = setting("STUB_CAPABILITY", "9.0");
    switch (attribute) {
        case 16: *value = 4; break;                      /* multiprocessors */
        case 36: *value = 2619000; break;                /* memory clock, kHz */
        case 37: *value = 6144; break;                   /* bus width */
        case 38: *value = 50 << 20; break;               /* L2 */
        case 75: *value = atoi(capability); break;
        case 76: *value = atoi(strchr(capability, '.') + 1); break;
        case 95: *value = 1; break;                      /* cooperative launch */
        case 97: *value = 227 << 10; break;              /* shared memory per block, opt-in */
        case 113: *value = 1; break;                     /* read-only registration */
        default: *value = 0;
    }
    return 0;
}

int cuDevicePrimaryCtxRetain(void **context, int device) {
    CALL("cuDevicePrimaryCtxRetain", "%d", device);
    STARTED;
    *context = (void *)(uintptr_t)(0xC0 + device);
    return 0;
}

int cuDevicePrimaryCtxRelease_v2(int device) {
    CALL("cuDevicePrimaryCtxRelease_v2", "%d", device);
    return 0;
}

int cuCtxSetCurrent(void *context) {
    CALL("cuCtxSetCurrent", "%p", context);
    STARTED;
    current = context;
    return 0;
}

/* ---- modules ---- */

typedef struct { char name[96]; int shared; } Kernel;

int cuModuleLoadData(void **module, const void *image) {
    CALL("cuModuleLoadData", "");
    CONTEXT;
    if (memcmp(image, "\177ELF", 4) && memcmp(image, "//", 2) && memcmp(image, ".ver", 4)) return INVALID_IMAGE;
    *module = (void *)image;
    return 0;
}

int cuModuleUnload(void *module) {
    CALL("cuModuleUnload", "");
    CONTEXT;
    (void)module;
    return 0;
}

int cuModuleGetFunction(Kernel **kernel, void *module, text name) {
    CALL("cuModuleGetFunction", "%s", name);
    CONTEXT;
    if (!module || !strcmp(name, setting("STUB_MISSING", ""))) return NOT_FOUND;
    *kernel = calloc(1, sizeof **kernel);
    snprintf((*kernel)->name, sizeof (*kernel)->name, "%s", name);
    (*kernel)->shared = 48 << 10;
    return 0;
}

int cuFuncSetAttribute(Kernel *kernel, int attribute, int value) {
    CALL("cuFuncSetAttribute", "%s %d %d", kernel->name, attribute, value);
    if (attribute == 8) {
        if (value > 227 << 10) return INVALID_VALUE;
        kernel->shared = value;
    }
    return 0;
}

int cuFuncGetAttribute(int *value, int attribute, Kernel *kernel) {
    CALL("cuFuncGetAttribute", "%d %s", attribute, kernel->name);
    *value = 0;
    return 0;
}

int cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, Kernel *kernel, int threads, size_t shared) {
    CALL("cuOccupancyMaxActiveBlocksPerMultiprocessor", "%s %d %zu", kernel->name, threads, shared);
    *blocks = 2;
    return 0;
}

/* ---- memory ---- */

enum { MOST = 4096 };
typedef struct { char *at; size_t size; } Range;
static Range owned[MOST], registered[MOST];
static int owners, pins;
static u64 used;

/* Threads may allocate at the same time. */
static char busy;
static void enter(void) { while (__atomic_test_and_set(&busy, __ATOMIC_ACQUIRE)) sched_yield(); }
static int leave(int status) { __atomic_clear(&busy, __ATOMIC_RELEASE); return status; }

static u64 total(void) { return strtoull(setting("STUB_MEMORY", "17179869184"), 0, 10); }

int cuMemGetInfo_v2(size_t *free_bytes, size_t *all) {
    CALL("cuMemGetInfo_v2", "");
    CONTEXT;
    *all = total();
    *free_bytes = total() - used;
    return 0;
}

int cuMemAlloc_v2(u64 *address, size_t size) {
    CALL("cuMemAlloc_v2", "%zu", size);
    CONTEXT;
    void *at;
    if (size == 0) return INVALID_VALUE;
    enter();
    if (size > total() - used || owners == MOST || posix_memalign(&at, 512, size)) return leave(OUT_OF_MEMORY);
    memset(at, 0, size);
    used += size;
    owned[owners++] = (Range){at, size};
    *address = (uintptr_t)at;
    return leave(0);
}

int cuMemFree_v2(u64 address) {
    CALL("cuMemFree_v2", "");
    CONTEXT;
    enter();
    for (int i = 0; i < owners; i++)
        if (owned[i].at == (char *)(uintptr_t)address) {
            used -= owned[i].size;
            free(owned[i].at);
            owned[i] = owned[--owners];
            return leave(0);
        }
    return leave(INVALID_VALUE);
}

int cuMemHostAlloc(void **at, size_t size, unsigned flags) {
    CALL("cuMemHostAlloc", "%zu %u", size, flags);
    CONTEXT;
    return posix_memalign(at, 4096, size) ? OUT_OF_MEMORY : 0;
}

int cuMemFreeHost(void *at) {
    CALL("cuMemFreeHost", "");
    CONTEXT;
    free(at);
    return 0;
}

/* The rights of the mapping around an address, as in /proc/self/maps: "r--s". */
static void rights(char *at, char *out) {
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[4096], found[8];
    unsigned long low, high;
    strcpy(out, "none");
    while (fgets(line, sizeof line, maps))
        if (sscanf(line, "%lx-%lx %7s", &low, &high, found) == 3 && low <= (uintptr_t)at && (uintptr_t)at < high) strcpy(out, found);
    fclose(maps);
}

int cuMemHostRegister_v2(char *at, size_t size, unsigned flags) {
    char kind[8];
    rights(at, kind);
    CALL("cuMemHostRegister_v2", "%zu %u %s", size, flags, kind);
    CONTEXT;
    if (!strcmp(kind, "r--p")) {
        note("HANG");
        for (;;) pause();
    }
    if (kind[1] != 'w' && flags != 8) return INVALID_VALUE;
    if ((uintptr_t)at % 4096 || pins == MOST) return INVALID_VALUE;
    for (int i = 0; i < pins; i++)
        if (at < registered[i].at + registered[i].size && registered[i].at < at + size) return ALREADY_REGISTERED;
    registered[pins++] = (Range){at, size};
    return 0;
}

int cuMemHostUnregister(char *at) {
    CALL("cuMemHostUnregister", "");
    CONTEXT;
    for (int i = 0; i < pins; i++)
        if (registered[i].at == at) { registered[i] = registered[--pins]; return 0; }
    return NOT_REGISTERED;
}

/* Whether all of a source is in registered memory (pinned) or none of it (pageable); a mixture fails on the real driver. */
static text source_kind(const char *at, size_t size) {
    for (int i = 0; i < pins; i++) {
        char *low = registered[i].at, *high = low + registered[i].size;
        if (at >= low && at + size <= high) return "registered";
        if (at < high && low < at + size) return "mixed";
    }
    return "plain";
}

int cuMemcpyHtoDAsync_v2(u64 target, const char *source, size_t size, void *stream) {
    text kind = source_kind(source, size);
    CALL("cuMemcpyHtoDAsync_v2", "%zu %s", size, kind);
    CONTEXT;
    (void)stream;
    if (!strcmp(kind, "mixed")) return INVALID_VALUE;
    memcpy((void *)(uintptr_t)target, source, size);
    return 0;
}

int cuMemcpyDtoHAsync_v2(void *target, u64 source, size_t size, void *stream) {
    CALL("cuMemcpyDtoHAsync_v2", "%zu", size);
    CONTEXT;
    (void)stream;
    memcpy(target, (void *)(uintptr_t)source, size);
    return 0;
}

int cuMemsetD32Async(u64 target, unsigned value, size_t words, void *stream) {
    CALL("cuMemsetD32Async", "%u %zu", value, words);
    CONTEXT;
    (void)stream;
    for (size_t i = 0; i < words; i++) ((unsigned *)(uintptr_t)target)[i] = value;
    return 0;
}

/* ---- streams, events, launches, graphs ---- */

typedef struct { int launches, copies; unsigned *history, capacity; } Graph;  // history: of the kernel `advance`
typedef struct { Graph *capturing; } Stream;

int cuStreamCreate(Stream **stream, unsigned flags) {
    CALL("cuStreamCreate", "%u", flags);
    CONTEXT;
    *stream = calloc(1, sizeof **stream);
    return 0;
}

int cuStreamDestroy_v2(Stream *stream) {
    CALL("cuStreamDestroy_v2", "");
    free(stream);
    return 0;
}

int cuStreamSynchronize(Stream *stream) {
    CALL("cuStreamSynchronize", "");
    CONTEXT;
    (void)stream;
    return 0;
}

int cuStreamQuery(Stream *stream) {
    CALL("cuStreamQuery", "");
    (void)stream;
    return 0;
}

int cuEventCreate(void **event, unsigned flags) {
    CALL("cuEventCreate", "%u", flags);
    CONTEXT;
    *event = malloc(8);
    return 0;
}

int cuEventDestroy_v2(void *event) {
    CALL("cuEventDestroy_v2", "");
    free(event);
    return 0;
}

int cuEventRecord(void *event, Stream *stream) {
    CALL("cuEventRecord", "");
    CONTEXT;
    (void)event, (void)stream;
    return 0;
}

int cuStreamWaitEvent(Stream *stream, void *event, unsigned flags) {
    CALL("cuStreamWaitEvent", "");
    CONTEXT;
    (void)event, (void)stream, (void)flags;
    return 0;
}

int cuEventSynchronize(void *event) {
    CALL("cuEventSynchronize", "");
    CONTEXT;
    (void)event;
    return 0;
}

int cuEventElapsedTime(float *milliseconds, void *from, void *to) {
    CALL("cuEventElapsedTime", "");
    (void)from, (void)to;
    *milliseconds = 1.0f;
    return 0;
}

int cuMemcpyAsync(u64 target, u64 source, size_t size, Stream *stream) {
    CALL("cuMemcpyAsync", "%zu%s", size, stream->capturing ? " captured" : "");
    CONTEXT;
    if (stream->capturing) stream->capturing->copies++;
    else memcpy((void *)(uintptr_t)target, (void *)(uintptr_t)source, size);
    return 0;
}

/* The one kernel that the stub can compute. */
static void add(void **values, unsigned threads) {
    float *x = *(float **)values[0], *y = *(float **)values[1], scale = *(float *)values[3];
    for (unsigned i = 0; i < threads && (int)i < *(int *)values[2]; i++) x[i] += scale * y[i];
}

static int start(const unsigned *grid, const unsigned *block, unsigned shared, Stream *stream, Kernel *kernel, void **values) {
    if (!kernel || !stream) return INVALID_HANDLE;
    if (!grid[0] || !grid[1] || !grid[2] || shared > (unsigned)kernel->shared || block[0] * block[1] * block[2] > 1024) return INVALID_VALUE;
    if (stream->capturing) {
        stream->capturing->launches++;
        if (!strcmp(kernel->name, "advance")) {  // kernels/cuda/advance.py
            stream->capturing->history = *(unsigned **)values[10];
            stream->capturing->capacity = *(unsigned *)values[11];
        }
    } else if (!strcmp(kernel->name, "add")) add(values, grid[0] * block[0]);
    return 0;
}

typedef struct { unsigned id, pad; int value[16]; } Attribute;
typedef struct { unsigned grid[3], block[3], shared; Stream *stream; Attribute *attributes; unsigned count; } Configuration;

int cuLaunchKernelEx(const Configuration *c, Kernel *kernel, void **values, void **extra) {
    char attributes[128] = "";
    for (unsigned i = 0; i < c->count; i++)
        sprintf(attributes + strlen(attributes), " %u=%d", c->attributes[i].id, c->attributes[i].value[0]);
    CALL("cuLaunchKernelEx", "%s grid=%u,%u,%u block=%u shared=%u%s%s", kernel ? kernel->name : "?", c->grid[0], c->grid[1], c->grid[2],
         c->block[0], c->shared, attributes, c->stream && c->stream->capturing ? " captured" : "");
    CONTEXT;
    (void)extra;
    return start(c->grid, c->block, c->shared, c->stream, kernel, values);
}

int cuLaunchKernel(Kernel *kernel, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared,
                   Stream *stream, void **values, void **extra) {
    CALL("cuLaunchKernel", "%s grid=%u,%u,%u block=%u shared=%u", kernel ? kernel->name : "?", gx, gy, gz, bx, shared);
    CONTEXT;
    (void)extra;
    return start((unsigned[]){gx, gy, gz}, (unsigned[]){bx, by, bz}, shared, stream, kernel, values);
}

int cuStreamBeginCapture_v2(Stream *stream, int mode) {
    CALL("cuStreamBeginCapture_v2", "%d", mode);
    CONTEXT;
    stream->capturing = calloc(1, sizeof(Graph));
    return 0;
}

int cuStreamEndCapture(Stream *stream, Graph **graph) {
    CALL("cuStreamEndCapture", "");
    *graph = stream->capturing;
    stream->capturing = 0;
    return 0;
}

int cuGraphInstantiateWithFlags(Graph **ready, Graph *graph, u64 flags) {
    CALL("cuGraphInstantiateWithFlags", "%llu launches=%d copies=%d", flags, graph->launches, graph->copies);
    *ready = malloc(sizeof **ready);
    **ready = *graph;
    return 0;
}

int cuGraphUpload(Graph *ready, Stream *stream) {
    CALL("cuGraphUpload", "");
    (void)ready, (void)stream;
    return 0;
}

int cuGraphLaunch(Graph *ready, Stream *stream) {
    CALL("cuGraphLaunch", "launches=%d copies=%d", ready->launches, ready->copies);
    CONTEXT;
    (void)stream;
    static int made;
    if (ready->history && made++ < atoi(setting("STUB_TOKENS", "1000000"))) {  // one more token, of id 0
        unsigned number = ready->history[0];
        ready->history[4 + 2 * (number & (ready->capacity - 1))] = 0;
        ready->history[0] = number + 1;
    }
    return 0;
}

int cuGraphExecDestroy(Graph *ready) {
    CALL("cuGraphExecDestroy", "");
    free(ready);
    return 0;
}

int cuGraphDestroy(Graph *graph) {
    CALL("cuGraphDestroy", "");
    free(graph);
    return 0;
}
