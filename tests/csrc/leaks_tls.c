// A library with thread-local storage of its own, for leaks.c.
static __thread void *in_dynamic_tls;

void **place(void) { return &in_dynamic_tls; }
