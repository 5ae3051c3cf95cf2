/* Children of vfork, which have their parent's memory: what they do before they are another program, or die, must not
 * keep the parent's idle memory from going back.
 *
 * usage: vforked exec|exit|die   die: in the middle of setuid
 * Prints FELL when memory went back, and FORKED when a child of fork could allocate. */
#define _GNU_SOURCE
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define MANY 3000

static void die_at_setuid(void) {
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_setuid, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {4, filter};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program)) _exit(9);
    int failed = setuid(getuid());
    _exit(failed);
}

static long resident(void) {
    long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (!file || fscanf(file, "%*d %ld", &pages) != 1) exit(3);
    fclose(file);
    return pages * 4;
}

static void fill_and_free(void) {
    static char *blocks[MANY];
    for (int i = 0; i < MANY; i++) memset(blocks[i] = malloc(100000), 1, 100000);
    for (int i = 0; i < MANY; i++) free(blocks[i]);
}

int main(int argc, char **argv) {
    const char *how = argc > 1 ? argv[1] : "";
    int dies = !strcmp(how, "die");
    char *volatile block = memset(malloc(1 << 20), 1, 1 << 20);
    pid_t child = vfork();
    if (child == 0) {
        if (dies) die_at_setuid();
        free(block);
        if (!strcmp(how, "exit")) _exit(0);
        execl("/bin/true", "true", NULL);
        _exit(9);
    }
    int status;
    if (waitpid(child, &status, 0) != child || (WIFSIGNALED(status) != 0) != dies) return 4;
    fill_and_free();
    for (int tries = 0; resident() > 100000; tries++) {
        if (tries > 200) return printf("STAYED %ld KiB\n", resident()), 1;
        usleep(50000);
    }
    printf("FELL\n");
    fflush(stdout);
    child = fork();
    if (child == 0) {
        fill_and_free();
        _exit(0);
    }
    if (waitpid(child, &status, 0) != child || status != 0) return 5;
    printf("FORKED\n");
    return 0;
}
