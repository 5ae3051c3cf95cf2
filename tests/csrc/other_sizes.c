// Blocks whose sizes shift: 16 MiB are in use, then less, then again with other sizes. At the end of each phase it prints
// by how many bytes its private memory has grown since the start.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define LIVE (16u << 20)
#define MOST (1u << 20)

static unsigned long random_state = 88172645463325252;
static unsigned long random_number(void) {
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state;
}

static long private_memory(void) {
    char line[256];
    long kib = -1;
    static char buffer[4096];
    FILE *status = fopen("/proc/self/status", "r");
    setvbuf(status, buffer, _IOFBF, sizeof buffer);
    while (fgets(line, sizeof line, status))
        if (sscanf(line, "RssAnon: %ld", &kib) == 1) break;
    fclose(status);
    return kib * 1024;
}

struct block {
    char *p;
    size_t size;
};

int main(void) {
    struct block *blocks =
        mmap(NULL, MOST * sizeof *blocks, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    static const struct { size_t least, wide; } phases[] = {{200, 400}, {300, 1500}, {2000, 12000}, {100, 200}, {8000, 60000}};
    size_t live = 0, count = 0;
    long before = private_memory();
    for (int phase = 0; phase < 5; phase++) {
        // A tenth stays.
        while (live > LIVE / 10) {
            size_t at = random_number() % count;
            live -= blocks[at].size;
            free(blocks[at].p);
            blocks[at] = blocks[--count];
        }
        size_t replaced = 0;
        while (live < LIVE || replaced < LIVE / 2) {
            if (live >= LIVE) {
                size_t at = random_number() % count;
                live -= blocks[at].size;
                replaced += blocks[at].size;
                free(blocks[at].p);
                blocks[at] = blocks[--count];
                continue;
            }
            size_t size = phases[phase].least + random_number() % phases[phase].wide;
            blocks[count].p = malloc(size);
            memset(blocks[count].p, 1, size);
            blocks[count++].size = size;
            live += size;
        }
        printf("%ld %zu\n", private_memory() - before, live);
        fflush(stdout);
    }
    // Nothing is given back at the end: what is in use then is what a recording ends with.
    return 0;
}
