/* Allocates in every way, in threads, and ends. With the argument `confine`, it first confines itself to the system calls that the
 * C library makes for this. */
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <malloc.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "check.h"

#define ALLOW(name)                                                   \
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_##name, 0, 1),            \
    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)

static void confine(void) {
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        ALLOW(mmap), ALLOW(munmap), ALLOW(mprotect), ALLOW(madvise), ALLOW(brk), ALLOW(mremap), ALLOW(futex),
        /* What pthread_create, the end of a thread, and printf make, and glibc's allocator for threads. */
        ALLOW(rt_sigaction), ALLOW(sched_getaffinity), ALLOW(getrandom), ALLOW(clone), ALLOW(clone3), ALLOW(rseq), ALLOW(set_robust_list), ALLOW(rt_sigprocmask), ALLOW(exit),
        ALLOW(exit_group), ALLOW(write), ALLOW(fstat), ALLOW(newfstatat),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
    };
    struct sock_fprog filter = {sizeof code / sizeof *code, code};
    CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0);
}

static void *passed[64];

static void *work(void *argument) {
    uintptr_t seed = (uintptr_t)argument;
    void *blocks[512] = {0};
    for (int i = 0; i < 60000; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        void **at = &blocks[seed >> 55];
        size_t size = (seed >> 33) % (i % 100 == 0 ? 3000000 : 3000);
        switch ((seed >> 20) % 8) {
        case 0: free(*at); *at = calloc(1, size); break;
        case 1: free(*at); *at = aligned_alloc(64, size / 64 * 64 + 64); break;
        case 2: *at = realloc(*at, size + 1); break;
        case 3: *at = __atomic_exchange_n(&passed[seed >> 58], *at, __ATOMIC_ACQ_REL); break;
        default: free(*at); *at = malloc(size); break;
        }
        CHECK(*at != NULL || (seed >> 20) % 8 == 3);
    }
    for (int i = 0; i < 512; i++) free(blocks[i]);
    return NULL;
}

int main(int argc, char **argv) {
    if (argc > 1 && strcmp(argv[1], "confine") == 0) confine();
    for (int round = 0; round < 3; round++) {
        pthread_t threads[4];
        for (uintptr_t i = 0; i < 4; i++) CHECK(pthread_create(&threads[i], NULL, work, (void *)(i * 7919 + 1)) == 0);
        for (int i = 0; i < 4; i++) CHECK(pthread_join(threads[i], NULL) == 0);
        char *growing = NULL;
        for (size_t size = 1 << 20; size < (96u << 20); size = size * 3 / 2) {
            growing = realloc(growing, size);
            CHECK(growing != NULL);
            growing[size - 1] = 1;
        }
        free(growing);
        malloc_trim(0);
    }
    for (int i = 0; i < 64; i++) free(passed[i]);
    if (failed_checks == 0) printf("done\n");
    return failed_checks;
}
