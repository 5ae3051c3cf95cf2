/* Prints what the pool says of its goal and of the settings that follow from it. */
#include "check.h"
#include "poolscope.h"

int main(void) {
    static const char *const names[] = {"goal", "thread_cache", "scavenge_ms", "gc_ms"};
    char value[32];
    for (unsigned i = 0; i < sizeof names / sizeof *names; i++) {
        CHECK(poolscope_get(names[i], value, sizeof value) > 0);
        printf("%s%c", value, i < 3 ? ' ' : '\n');
    }
    return 0;
}
