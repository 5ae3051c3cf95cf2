/* A library with one frame, for programs to open (sample_cost.c). */
void through(void (*f)(long), long count);

void through(void (*f)(long), long count) {
    f(count);
    __asm__ volatile("" ::: "memory");
}
