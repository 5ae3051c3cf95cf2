/* Limits that a process meets or sets itself. The argument says which. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
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

static volatile sig_atomic_t barriers;

static void count_barrier(int signal) {
    (void)signal;
    barriers++;
}

/* Small blocks, taken and freed. Returns the barriers that this took. */
static int barriers_of_pairs(void) {
    enum { BLOCKS = 64, PAIRS = 20000 };
    char *blocks[BLOCKS] = {0};
    int before = barriers;
    for (int i = 0; i < PAIRS; i++) {
        char **block = &blocks[i * 7 % BLOCKS];
        free(*block);
        *block = malloc(16 + i % 500 * 8);
    }
    for (int i = 0; i < BLOCKS; i++) free(blocks[i]);
    return barriers - before;
}

static void trap_barriers(void) {
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_membarrier, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
    CHECK(signal(SIGSYS, count_barrier) != SIG_ERR);
    CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
}

/* A process of 40 MiB that may have no more threads: its calls stop its threads no more often than another's. */
static void barriers_without_threads(void) {
    CHECK(geteuid() != 0 || setresuid(54321, 54321, 54321) == 0);
    struct rlimit none = {0, 0};
    CHECK(setrlimit(RLIMIT_NPROC, &none) == 0);
    trap_barriers();
    allocate(40 << 20);
    CHECK(barriers_of_pairs() < 100);
}

/* The same of children of vfork, which can't start the thread of their parent. */
static void barriers_of_children(void) {
    static volatile int most;
    allocate(40 << 20);
    for (int i = 0; i < 8; i++) {
        usleep(i * 50 * 1000); /* The parent's thread ends meanwhile, sooner or later. */
        pid_t child = vfork();
        if (child == 0) {
            trap_barriers();
            int passed = barriers_of_pairs();
            if (passed > most) most = passed;
            _exit(0);
        }
        int status;
        CHECK(waitpid(child, &status, 0) == child && status == 0);
        CHECK(most < 100);
    }
}

/* Locks all memory and leaves room for 100 pages: where that is used up, blocks are refused, and nothing else happens. */
static void locked_to_the_last_page(void) {
    enum { BLOCKS = 3000 };
    static const size_t sizes[] = {100, 3000, 50000, 300000, 2000000};
    static char *blocks[BLOCKS];
    struct rlimit limit = {.rlim_cur = 8 << 20, .rlim_max = 8 << 20};
    CHECK(setrlimit(RLIMIT_MEMLOCK, &limit) == 0);
    CHECK(geteuid() != 0 || setresuid(65534, 65534, 65534) == 0);
    /* A stack that has no room to grow is the kernel's affair. */
    volatile char stack[200000];
    memset((void *)stack, 1, sizeof stack);
    allocate(100000);
    CHECK(mlockall(MCL_CURRENT | MCL_FUTURE) == 0);
    char status[4096] = "";
    int file = open("/proc/self/status", O_RDONLY);
    CHECK(file >= 0 && read(file, status, sizeof status - 1) > 0);
    const char *locked = strstr(status, "VmLck:");
    CHECK(locked != NULL);
    limit.rlim_cur = (rlim_t)atol(locked + 6) * 1024 + 100 * 4096;
    CHECK(setrlimit(RLIMIT_MEMLOCK, &limit) == 0);
    int refused = 0;
    for (int i = 0; i < BLOCKS; i++) {
        size_t size = sizes[i % 5];
        errno = 0;
        blocks[i] = malloc(size);
        CHECK(blocks[i] != NULL || errno == ENOMEM);
        if (blocks[i] == NULL) {
            refused++;
            continue;
        }
        memset(blocks[i], i, size);
    }
    CHECK(refused > BLOCKS / 2 && blocks[0] != NULL);
    for (int i = 0; i < BLOCKS; i++) {
        CHECK(blocks[i] == NULL || blocks[i][sizes[i % 5] - 1] == (char)i);
        free(blocks[i]);
    }
    CHECK(munlockall() == 0);
    allocate(10 << 20);
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
    } else if (strcmp(what, "barriers") == 0) {
        barriers_without_threads();
    } else if (strcmp(what, "barriers-vfork") == 0) {
        barriers_of_children();
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
    } else if (strcmp(what, "mlockall-full") == 0) {
        locked_to_the_last_page();
    }
    if (failed_checks == 0) printf("done\n");
    return failed_checks;
}
