// A library with thread-local storage of its own, for leaks.c.
#include <stdlib.h>

static __thread void *in_dynamic_tls;

void **place(void) { return &in_dynamic_tls; }

// And a variable of its own, which is gone when the library is.
static void *last;

void *make(void) { return last = malloc(1337); }
