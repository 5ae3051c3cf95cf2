/* Loses objects as CPython has them: each begins with a number of references and its type. */

#include <stdlib.h>

struct type {
    long references;
    struct type *type;
};

/* The program exports it, as CPython does: that is how its strings are known. */
struct type PyUnicode_Type = {1, &PyUnicode_Type};
static struct type bytes = {1, &PyUnicode_Type};

struct object {
    long references;
    struct type *type;
    void *other;
};

/* Nobody reads what is written: without volatile it would not be. */
static volatile struct object *new(size_t size, long references, struct type *type)
{
    volatile struct object *object = calloc(1, size);
    object->references = references;
    object->type = type;
    return object;
}

__attribute__((noinline)) static void lose(void)
{
    /* Immortal, as of 3.12 and of 3.14; one has its text in another encoding, too. */
    new(1000, 0xffffffffL, &PyUnicode_Type)->other = malloc(64);
    new(2000, 0xc0000003L, &PyUnicode_Type);
    /* One that somebody forgot to give back, and an immortal one of another type. */
    new(300, 1, &PyUnicode_Type);
    new(50, 0xffffffffL, &bytes);
    /* Too short for an object. */
    malloc(7);
}

/* Writes over what lose() has left on the stack. */
__attribute__((noinline)) static void forget(void)
{
    volatile char stack[4096];
    for (size_t i = 0; i < sizeof stack; i++)
        stack[i] = 0;
}

int main(void)
{
    lose();
    forget();
    return 0;
}
