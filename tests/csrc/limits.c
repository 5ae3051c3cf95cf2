/* Limits that a process meets or sets itself. The argument says which. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "check.h"

static void allocate(size_t bytes) {
    for (size_t all = 0; all < bytes; all += 100000) {
        char *p = malloc(100000);
        CHECK(p != NULL);
        memset(p, 1, 100000);
    }
}

/* An address that the kernel can't read, which no compiler knows of. */
static const struct rlimit *bad(void) {
    const struct rlimit *volatile address = (const struct rlimit *)8;
    return address;
}

/* Pages of the process that have memory. */
static long resident(void) {
    long pages = 0;
    FILE *statm = fopen("/proc/self/statm", "r");
    CHECK(statm != NULL && fscanf(statm, "%*d %ld", &pages) == 1);
    fclose(statm);
    return pages;
}

/* Frees 48 MiB while the process may have no more threads. Whether the memory goes back once it may. */
static void no_more_threads(void) {
    enum { BLOCKS = 80, SIZE = 600000 };
    static char *blocks[BLOCKS];
    struct rlimit limit;
    CHECK(geteuid() != 0 || setresuid(54321, 54321, 54321) == 0);
    CHECK(getrlimit(RLIMIT_NPROC, &limit) == 0);
    struct rlimit none = {.rlim_cur = 0, .rlim_max = limit.rlim_max};
    CHECK(setrlimit(RLIMIT_NPROC, &none) == 0);
    for (int i = 0; i < BLOCKS; i++) {
        CHECK((blocks[i] = malloc(SIZE)) != NULL);
        memset(blocks[i], 1, SIZE);
    }
    long peak = resident();
    for (int i = 0; i < BLOCKS; i++) free(blocks[i]);
    usleep(1500 * 1000);
    CHECK(resident() > peak / 2); /* Nobody was there to do it. */
    CHECK(setrlimit(RLIMIT_NPROC, &limit) == 0);
    for (int i = 0; i < 600 && resident() > peak / 4; i++) {
        usleep(50 * 1000);
        free(malloc(SIZE));
    }
    CHECK(resident() <= peak / 4);
}

int main(int argc, char **argv) {
    const char *what = argc > 1 ? argv[1] : "";
    struct rlimit limit;
    if (strcmp(what, "bad-pointer") == 0) {
        errno = 0;
        CHECK(setrlimit(RLIMIT_AS, bad()) == -1 && errno == EFAULT);
        errno = 0;
        CHECK(prlimit(0, RLIMIT_AS, bad(), NULL) == -1 && errno == EFAULT);
        errno = 0;
        CHECK(prlimit(getpid(), RLIMIT_AS, NULL, (struct rlimit *)bad()) == -1 && errno == EFAULT);
        limit = (struct rlimit){.rlim_cur = 2, .rlim_max = 1};
        CHECK(setrlimit(RLIMIT_AS, &limit) == -1 && errno == EINVAL);
        allocate(10 << 20);
    } else if (strcmp(what, "mlockall") == 0) {
        /* As many bytes as may be had, up to 48 MiB, and no right to more. */
        CHECK(getrlimit(RLIMIT_MEMLOCK, &limit) == 0);
        rlim_t bytes = limit.rlim_max < 48 << 20 ? limit.rlim_max : 48 << 20;
        limit = (struct rlimit){.rlim_cur = bytes, .rlim_max = bytes};
        CHECK(setrlimit(RLIMIT_MEMLOCK, &limit) == 0);
        CHECK(geteuid() != 0 || setresuid(65534, 65534, 65534) == 0);
        allocate(1 << 20);
        int locked = mlockall(MCL_CURRENT);
        CHECK(locked == 0 || errno == ENOMEM);
        /* What the kernel compared with the limit: read without a stream, whose buffer would be one more block. */
        char line[256] = "";
        int statm = open("/proc/self/statm", O_RDONLY);
        CHECK(statm >= 0 && read(statm, line, sizeof line - 1) > 0);
        long pages = atol(line);
        CHECK(pages * 4096 < 20 << 20);
        CHECK((pages * 4096 < (long)bytes) == (locked == 0));
        CHECK(munlockall() == 0);
        allocate(10 << 20);
        errno = 0;
        CHECK(mlockall(~0) == -1 && errno == EINVAL);
    } else if (strcmp(what, "threads") == 0) {
        no_more_threads();
    } else if (strcmp(what, "mlockall-8") == 0) {
        /* What a process may lock that nobody gave more to. */
        limit = (struct rlimit){.rlim_cur = 8 << 20, .rlim_max = 8 << 20};
        CHECK(setrlimit(RLIMIT_MEMLOCK, &limit) == 0);
        CHECK(geteuid() != 0 || setresuid(65534, 65534, 65534) == 0);
        allocate(1 << 20);
        CHECK(mlockall(MCL_CURRENT | MCL_FUTURE) == 0);
        /* Of what is to come, there is room for some, less than with a heap that grows by pages. */
        allocate(100000);
        CHECK(munlockall() == 0);
        allocate(10 << 20);
    }
    if (failed_checks == 0) printf("done\n");
    return failed_checks;
}
