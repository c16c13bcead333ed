/* Stands in for libcuda.so.1: memory is the host's, and FAKE_CUDA says what goes wrong. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int is(const char *what) {
    const char *said = getenv("FAKE_CUDA");
    return said && strcmp(said, what) == 0;
}

int cuInit(unsigned flags) {
    static int calls = 0;
    if (is("hang")) for (;;) pause();
    if (is("late") && calls++ == 0) return 802;
    return is("flake") ? 802 : is("lost") ? 46 : 0;
}
int cuDeviceGetByPCIBusId(int *device, const char *id) { *device = 0; return is("unknown") ? 101 : 0; }
int cuDevicePrimaryCtxRetain(void **context, int device) { *context = device ? 0 : (void *)1; return 0; }
int cuCtxSetCurrent(void *context) { return context ? 0 : 201; }
int cuMemGetInfo_v2(size_t *free, size_t *total) { *total = 1 << 26; *free = is("busy") ? 1 << 10 : *total; return 0; }
int cuMemAlloc_v2(unsigned long long *at, size_t size) { *at = (unsigned long long)malloc(size); return *at ? 0 : 2; }
int cuMemFree_v2(unsigned long long at) { free((void *)at); return 0; }
int cuMemcpyHtoD_v2(unsigned long long to, const void *from, size_t size) { memcpy((void *)to, from, size); return 0; }
int cuMemcpyDtoH_v2(void *to, unsigned long long from, size_t size) {
    if (is("ecc")) return 214;
    memcpy(to, (void *)from, size);
    if (is("flip")) ((char *)to)[size / 2] ^= 4;
    return 0;
}
