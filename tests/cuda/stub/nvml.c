/* NVML without a device, for the tests of energy; built as libnvidia-ml.so.1. Environment:
 *   NVML_DEVICES=1
 *   NVML_WATTS=50          what every device takes all the time
 *   NVML_JOULES=0          what the last device took on top, once the CUDA driver has been opened in this process
 *   NVML_PERIOD=20         milliseconds between updates of the energy counter
 *   NVML_FAIL=name:status  that function returns the status; several, comma separated
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef unsigned long long u64;

enum { INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3 };

static double setting(const char *name, double otherwise) {
    const char *value = getenv(name);
    return value ? atof(value) : otherwise;
}

static int wanted(const char *name) {
    const char *list = getenv("NVML_FAIL");
    const char *at = list ? strstr(list, name) : NULL;
    return at && at[strlen(name)] == ':' ? atoi(at + strlen(name) + 1) : 0;
}

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec + now.tv_nsec / 1e9;
}

static int last(void *device) { return (long)device == (long)setting("NVML_DEVICES", 1); }

int nvmlInitWithFlags(unsigned flags) { return flags ? INVALID_ARGUMENT : wanted(__func__); }

const char *nvmlErrorString(int status) { return status == NOT_SUPPORTED ? "Not Supported" : "a failure of the stub"; }

int nvmlDeviceGetCount_v2(unsigned *count) {
    *count = setting("NVML_DEVICES", 1);
    return wanted(__func__);
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) {
    *device = (void *)(long)(index + 1);
    return wanted(__func__);
}

int nvmlDeviceGetHandleByUUID(const char *uuid, void **device) { return uuid && device ? wanted(__func__) : INVALID_ARGUMENT; }

int nvmlDeviceGetUUID(void *device, char *text, unsigned size) {
    unsigned b = 0xA0 + (long)device - 1; /* as in stub.c */
    char digits[33];
    for (int i = 0; i < 16; i++) sprintf(digits + 2 * i, "%02x", b);
    snprintf(text, size, "GPU-%.8s-%.4s-%.4s-%.4s-%.12s", digits, digits, digits, digits, digits);
    return wanted(__func__);
}

int nvmlDeviceGetName(void *device, char *text, unsigned size) {
    snprintf(text, size, "Stub GPU %ld", (long)device - 1);
    return wanted(__func__);
}

int nvmlDeviceGetPowerUsage(void *device, unsigned *milliwatts) {
    *milliwatts = device ? 1000 * setting("NVML_WATTS", 50) : 0;
    return wanted(__func__);
}

int nvmlDeviceGetTotalEnergyConsumption(void *device, u64 *millijoules) {
    double period = setting("NVML_PERIOD", 20) / 1000;
    double joules = (u64)(seconds() / period) * period * setting("NVML_WATTS", 50);
    if (last(device) && dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD)) joules += setting("NVML_JOULES", 0);
    *millijoules = 1000 * joules;
    return wanted(__func__);
}
