// A program with an allocator of its own, in the place of the C library's, which has no reallocarray.
//
// usage: replaced_malloc SCENARIO

#include "scenarios.h"

static _Alignas(64) char memory[1 << 20];
static size_t used;

// Before each block.
struct head {
    size_t size, mark;
};

#define MARK ((size_t)0x6d61726b6d61726b)

void *malloc(size_t size) {
    size_t all = (size + sizeof(struct head) + 15) & ~(size_t)15;
    if (all > sizeof memory - used) return NULL;
    struct head *head = (struct head *)(memory + used);
    used += all;
    *head = (struct head){size, MARK};
    return head + 1;
}

__attribute__((noinline)) void free(void *p) {
    if (p == NULL) return;
    struct head *head = (struct head *)p - 1;
    if (head->mark != MARK) abort();
    head->mark = 0;
}

void *calloc(size_t count, size_t size) { return memset(malloc(count * size), 0, count * size); }

void *realloc(void *p, size_t size) {
    void *new = malloc(size);
    if (p == NULL || new == NULL) return new;
    size_t before = ((struct head *)p - 1)->size;
    memcpy(new, p, before < size ? before : size);
    free(p);
    return new;
}

void *memalign(size_t align, size_t size) { return align <= 16 ? malloc(size) : NULL; }
void *aligned_alloc(size_t align, size_t size) { return memalign(align, size); }
int posix_memalign(void **out, size_t align, size_t size) { return (*out = memalign(align, size)) ? 0 : ENOMEM; }
void *valloc(size_t size) { return (void)size, NULL; }
void *pvalloc(size_t size) { return (void)size, NULL; }
size_t malloc_usable_size(void *p) { return p ? ((struct head *)p - 1)->size : 0; }

// C23's, which the pool has.
CHECK_WEAK void free_sized(void *p, size_t size);
CHECK_WEAK void free_aligned_sized(void *p, size_t align, size_t size);

static int is_own(void *p) { return (char *)p > memory && (char *)p < memory + sizeof memory; }

static void own_blocks(void) {
    char *p = reallocarray(NULL, 10, 20);
    CHECK(is_own(p));
    memset(p, 'x', 200);
    p = reallocarray(p, 100, 20);
    CHECK(is_own(p) && p[0] == 'x' && p[199] == 'x');
    free(p);
    CHECK(reallocarray(NULL, hidden(SIZE_MAX / 2), 4) == NULL && errno == ENOMEM);
    if (ON_POOL) {
        char *sized = malloc(100), *aligned = aligned_alloc(16, 100);
        free_sized(sized, 100);
        free_aligned_sized(aligned, 16, 100);
        CHECK(((struct head *)sized - 1)->mark == 0 && ((struct head *)aligned - 1)->mark == 0);
    }
    // What the C library allocates is the program's, too.
    p = strdup("a copy");
    CHECK(is_own(p));
    free(p);
}

static const struct scenario SCENARIOS[] = {
    {"own-blocks", own_blocks},
};
MAIN(SCENARIOS)
