/* Shows the settings of device 0 that are named, one a line, as the environment has them; NAME=VALUE changes one first. */
#include "poolscope_gpu.h"

#include <stdio.h>
#include <string.h>

int main(int argc, char **argv) {
    for (int at = 1; at < argc; at++) {
        char value[64], *equals = strchr(argv[at], '=');
        if (equals) {
            *equals = 0;
            if (poolscope_gpu_configure(0, argv[at], equals + 1) != 0) {
                printf("%s refused: %s\n", argv[at], poolscope_gpu_error());
                continue;
            }
        }
        size_t length = poolscope_gpu_get(0, argv[at], value, sizeof value);
        if (length == 0) printf("%s unknown: %s\n", argv[at], poolscope_gpu_error());
        else printf("%s=%s (%zu)\n", argv[at], value, length);
    }
    return 0;
}
