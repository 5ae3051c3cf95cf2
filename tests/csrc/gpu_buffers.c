/* Owned buffers of device and pinned memory. With POOLSCOPE_GPU_DEVICE=sim:256M:2. */
#include "poolscope_gpu.h"

#include <stdlib.h>
#include <string.h>

#include "check.h"

#define MIB ((size_t)1 << 20)

static long long in_use(int device) {
    char text[4096];
    CHECK(poolscope_gpu_stats_json(device, text, sizeof text) < sizeof text);
    const char *at = strstr(text, "\"current_usage\":");
    return at ? atoll(at + strlen("\"current_usage\":")) : -1;
}

int main(void) {
    poolscope_data_ptr buffers[3];
    memset(buffers, 0xee, sizeof buffers);
    CHECK(poolscope_gpu_data_ptr_alloc(1, 3 * MIB, NULL, &buffers[0]) == 0);
    CHECK(poolscope_gpu_data_ptr_alloc(1, 300, NULL, &buffers[1]) == 0);
    CHECK(buffers[0].length == 3 * MIB && buffers[0].device_kind == POOLSCOPE_DEVICE_CUDA && buffers[0].device_index == 1);
    CHECK(poolscope_gpu_size(1, buffers[0].data) == 3 * MIB && poolscope_gpu_size(1, buffers[1].data) == 512);
    CHECK(in_use(1) == (long long)(3 * MIB + 512) && in_use(0) == 0);

    CHECK(poolscope_gpu_pinned_data_ptr_alloc(1, 2 * MIB, NULL, &buffers[2]) == 0);
    CHECK(buffers[2].device_kind == POOLSCOPE_DEVICE_HOST && buffers[2].length == 2 * MIB);
    memset(buffers[2].data, 1, buffers[2].length);

    /* Whoever has the structure frees the block, by what is in it. */
    for (int at = 0; at < 3; at++) buffers[at].deleter(buffers[at].context);
    CHECK(in_use(1) == 0 && poolscope_gpu_size(1, buffers[2].data) == 0);

    poolscope_data_ptr buffer;
    memset(&buffer, 0xee, sizeof buffer);
    CHECK(poolscope_gpu_data_ptr_alloc(0, 0, NULL, &buffer) == 0 && !buffer.data && !buffer.deleter && buffer.length == 0);
    memset(&buffer, 0xee, sizeof buffer);
    CHECK(poolscope_gpu_data_ptr_alloc(0, 300 * MIB, NULL, &buffer) == -1 && strstr(poolscope_gpu_error(), "314572800"));
    CHECK(!buffer.data && !buffer.deleter && buffer.length == 0);
    CHECK(poolscope_gpu_pinned_data_ptr_alloc(2, 1, NULL, &buffer) == -1);
    return failed_checks;
}
