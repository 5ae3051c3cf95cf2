/* A signal handler forks while its thread is in malloc and others have the pool's locks. The child goes on where the
 * handler returns, and allocates.
 *
 * usage: fork_in_handler FORKS
 * Prints how many children there were at least, then GOOD, or how many did not end. */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

static pid_t original;
static volatile int forks, hung, failed;

static void use(int times) {
    for (int i = 0; i < times; i++) {
        volatile char *large = malloc(300000 + i * 1000), *medium = malloc(5000);
        large[0] = medium[0] = 1;
        free((void *)large);
        free((void *)medium);
    }
}

static void on_alarm(int number) {
    (void)number;
    if (getpid() != original) return;
    pid_t child = fork();
    if (child == 0) return;
    forks++;
    int status = 0;
    for (int tries = 0; tries < 4000; tries++) {
        if (waitpid(child, &status, WNOHANG) == child) {
            failed += status != 0;
            return;
        }
        usleep(2000);
    }
    hung++;
    kill(child, SIGKILL);
    waitpid(child, &status, 0);
}

static void *churn(void *unused) {
    for (;;) use(20);
    return unused;
}

int main(int argc, char **argv) {
    int wanted = argc > 1 ? atoi(argv[1]) : 0;
    original = getpid();
    signal(SIGALRM, on_alarm);
    sigset_t alarm_alone;
    sigemptyset(&alarm_alone);
    sigaddset(&alarm_alone, SIGALRM);
    pthread_sigmask(SIG_BLOCK, &alarm_alone, NULL);
    pthread_t thread;
    for (int i = 0; i < 2; i++) pthread_create(&thread, NULL, churn, NULL);
    pthread_sigmask(SIG_UNBLOCK, &alarm_alone, NULL);
    /* Each alarm is set here, and not by the timer itself: on a busy machine a child may take longer than the time to the
     * next alarm, and this thread would do nothing but fork. */
    struct itimerval once = {{0, 0}, {0, 5000}};
    for (int alarms = 0; forks < wanted && hung == 0; use(1)) {
        if (alarms == forks) {
            alarms++;
            setitimer(ITIMER_REAL, &once, NULL);
        }
        if (getpid() != original) {
            use(3);
            _exit(0);
        }
    }
    printf("FORKS %d\n", forks);
    if (hung || failed) return printf("%d hung, %d failed\n", hung, failed), fflush(stdout), 1;
    printf("GOOD\n");
    fflush(stdout);
    _exit(0);
}
