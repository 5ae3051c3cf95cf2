/* A thread that has few blocks at a time of each of many sizes, and pauses after each hundred, as one that answers
 * requests does. Says in how many pages its blocks of each class of 16 (up to 1 KiB) or 128 bytes ever lay, and in how
 * many those of the most that were live at a time could have: `pages USED NEEDED`.
 *
 * usage: few_live ALLOCATIONS PAUSE-IN-US
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { LIVE = 16, LARGEST = 2000, CLASSES = 80, PAGES = 256 };

struct class {
    long live, most;
    int pages;
    uintptr_t page[PAGES];
};

static struct class classes[CLASSES];

static int class_of(size_t size) { return size <= 1024 ? (size + 15) / 16 : 64 + (size - 1024 + 127) / 128; }
static size_t bytes_of(int class) { return class <= 64 ? class * 16 : 1024 + (class - 64) * 128; }

int main(int argc, char **argv) {
    long allocations = atol(argv[1]), pause = argc > 2 ? atol(argv[2]) : 0;
    char *block[LIVE] = {0};
    int class[LIVE];
    uint32_t seed = 12345;
    for (long i = 0; i < allocations; i++) {
        if (pause && i % 100 == 99) usleep(pause);
        seed = seed * 1664525u + 1013904223u;
        size_t size = 16 + (seed >> 8) % LARGEST;
        int at = i % LIVE;
        if (block[at]) {
            free(block[at]);
            classes[class[at]].live--;
        }
        block[at] = malloc(size);
        block[at][0] = 1;
        struct class *its = &classes[class[at] = class_of(size)];
        if (++its->live > its->most) its->most = its->live;
        uintptr_t page = (uintptr_t)block[at] >> 12;
        int known = 0;
        for (int k = 0; k < its->pages; k++) known |= its->page[k] == page;
        if (!known && its->pages < PAGES) its->page[its->pages++] = page;
    }
    long used = 0, needed = 0;
    for (int k = 0; k < CLASSES; k++) {
        used += classes[k].pages;
        needed += (classes[k].most * bytes_of(k) + 4095) / 4096;
    }
    printf("pages %ld %ld\n", used, needed);
    return 0;
}
