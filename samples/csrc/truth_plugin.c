/* A library for truth.c to load with dlopen: its function site_plugin holds 64 MiB. */
#include "truth.h"

__attribute__((noinline)) void site_plugin(struct blocks *blocks, size_t total) {
    blocks_fill(blocks, total);
    __asm__ volatile("" ::: "memory"); /* no tail call takes this frame away */
}

void plugin_hold(void) {
    static struct blocks held;
    size_t total = 64 * MIB;
    held = blocks_room(total);
    site_plugin(&held, total);
    blocks_tell("site_plugin", total, 1);
}
