/* For programs that check themselves: each check that fails is named on standard error, and main returns failed_checks. */
#ifndef CHECK_H
#define CHECK_H

#include <stdio.h>

static int failed_checks;

#define CHECK(condition)                                                          \
    do {                                                                          \
        if (!(condition)) {                                                       \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition); \
            failed_checks = 1;                                                    \
        }                                                                         \
    } while (0)

#endif
