/* What poolscope.h promises to C. Linked with the library, or built with POOLSCOPE_WEAK and preloaded; then it says
 * "no pool" without the library. */
#include "poolscope.h"

#include <errno.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"

/* Keeps the compiler from seeing that a size is absurd, or that a block is not used. */
static volatile size_t huge = SIZE_MAX / 2;
static void *volatile seen;

static int is_filled(const unsigned char *bytes, int value, size_t size) {
    for (size_t i = 0; i < size; i++)
        if (bytes[i] != value) return 0;
    return 1;
}

static void blocks_have_their_size_and_are_aligned(void) {
    for (size_t size = 0; size < 2000000; size = size * 5 / 4 + 1) {
        unsigned char *block = poolscope_malloc(size);
        CHECK(block && (uintptr_t)block % 16 == 0 && poolscope_usable_size(block) >= size);
        memset(block, 0xEE, size);
        poolscope_free_sized(block, size);

        block = poolscope_calloc(size, 1);
        CHECK(block && is_filled(block, 0, size));
        poolscope_free(block);
    }
    for (size_t align = 1; align <= (size_t)1 << 20; align *= 2) {
        for (size_t size = 1; size < 500000; size = size * 7 + 3) {
            void *block = poolscope_aligned_alloc(align, size);
            CHECK(block && (uintptr_t)block % align == 0 && poolscope_usable_size(block) >= size);
            memset(block, 1, size);
            poolscope_free_aligned_sized(block, align, size);
        }
    }
    CHECK(poolscope_usable_size(NULL) == 0);
}

static void realloc_keeps_the_contents(void) {
    unsigned char *block = poolscope_realloc(NULL, 10);
    CHECK(block);
    memset(block, 7, 10);
    for (size_t size = 10; size < 5000000; size *= 3) {
        block = poolscope_realloc(block, size);
        CHECK(block && is_filled(block, 7, 10));
    }
    errno = 0;
    CHECK(!poolscope_realloc(block, huge) && errno == ENOMEM && is_filled(block, 7, 10));
    block = poolscope_realloc(block, 10);
    CHECK(block && is_filled(block, 7, 10));
    CHECK(!poolscope_realloc(block, 0));
}

static void what_cannot_be_served_is_null_with_errno(void) {
    errno = 0;
    CHECK(!poolscope_malloc(huge) && errno == ENOMEM);
    errno = 0;
    CHECK(!poolscope_calloc(huge, 4) && errno == ENOMEM);
    errno = 0;
    CHECK(!poolscope_aligned_alloc(64, huge) && errno == ENOMEM);
    errno = 0;
    CHECK(!poolscope_aligned_alloc(48, 96) && errno == EINVAL);
    errno = 0;
    CHECK(!poolscope_aligned_alloc(0, 96) && errno == EINVAL);
    errno = 77;
    poolscope_free(NULL);
    poolscope_free(poolscope_malloc(100));
    poolscope_free(poolscope_malloc(1000000));
    CHECK(errno == 77);
}

static void both_families_are_one(void) {
    seen = poolscope_malloc(100);
    free(seen);
    seen = malloc(100);
    CHECK(poolscope_usable_size(seen) >= 100);
    poolscope_free(seen);
}

static void free_memory_goes_back_to_the_kernel(void) {
    size_t size = (size_t)8 << 20;
    char *block = poolscope_malloc(size);
    memset(block, 1, size);
    poolscope_free(block);
    CHECK(poolscope_release_free_memory() >= size);
    CHECK(poolscope_release_free_memory() < size);
}

static void settings_are_read_and_changed_by_name(void) {
    char value[64];
    CHECK(poolscope_get("period", value, sizeof value) == 4 && strcmp(value, "512K") == 0);
    errno = 77;
    CHECK(poolscope_set("scavenge_ms", "250") == 0);
    CHECK(poolscope_get("scavenge_ms", value, sizeof value) == 3 && strcmp(value, "250") == 0);
    CHECK(poolscope_set("thread_cache", "1M") == 0);
    CHECK(poolscope_get("thread_cache", value, sizeof value) == 2 && strcmp(value, "1M") == 0);

    CHECK(poolscope_set("no_such_setting", "1") == ENOENT);
    CHECK(poolscope_set("scavenge_ms", "soon") == EINVAL);
    CHECK(poolscope_set("arena", "1G") == EPERM);
    CHECK(poolscope_set(NULL, "1") == EINVAL && poolscope_set("scavenge_ms", NULL) == EINVAL);
    CHECK(poolscope_get("scavenge_ms", value, sizeof value) == 3 && strcmp(value, "250") == 0);

    CHECK(poolscope_get("no_such_setting", value, sizeof value) == 0 && value[0] == 0);
    memset(value, '*', sizeof value);
    CHECK(poolscope_get("scavenge_ms", value, 3) == 3 && strcmp(value, "25") == 0 && value[3] == '*');
    CHECK(poolscope_get("scavenge_ms", value, 4) == 3 && strcmp(value, "250") == 0 && value[4] == '*');
    CHECK(poolscope_get("scavenge_ms", value, 1) == 3 && value[0] == 0);
    CHECK(poolscope_get("scavenge_ms", NULL, 0) == 3);
    CHECK(errno == 77);
}

static void statistics_are_cut_as_snprintf_cuts_them(void) {
    static char text[1 << 20], json[1 << 20];
    size_t length = poolscope_stats_text(text, sizeof text);
    CHECK(length > 500 && length < sizeof text && strlen(text) == length && strstr(text, "MALLOC:"));
    length = poolscope_stats_json(json, sizeof json);
    CHECK(length > 500 && length < sizeof json && strlen(json) == length && json[0] == '{');
    char few[5] = "****";
    CHECK(poolscope_stats_text(few, 4) > 500 && strlen(few) == 3 && few[4] == 0 && memcmp(few, text, 3) == 0);
    CHECK(poolscope_stats_text(NULL, 0) > 500 && poolscope_stats_json(NULL, 0) > 500);
}

static void a_reset_gives_back_what_is_unused_and_keeps_blocks(void) {
    size_t size = (size_t)8 << 20;
    unsigned char *kept = poolscope_malloc(1000), *gone = poolscope_malloc(size);
    memset(kept, 5, 1000);
    memset(gone, 1, size);
    poolscope_free(gone);
    CHECK(poolscope_reset() >= size && is_filled(kept, 5, 1000));
    poolscope_free(kept);
}

static void buffers_come_from_the_pool(void) {
    poolscope_data_ptr buffer;
    for (size_t align = 1; align <= (size_t)1 << 21; align *= 2) {
        errno = 77;
        CHECK(poolscope_data_ptr_alloc(10000, align, &buffer) == 0 && errno == 77);
        CHECK((uintptr_t)buffer.data % align == 0 && buffer.length == 10000);
        CHECK(buffer.device_kind == POOLSCOPE_DEVICE_HOST && buffer.device_index == 0 && buffer.deleter);
        CHECK(poolscope_usable_size(buffer.data) >= 10000);
        memset(buffer.data, 1, buffer.length);
        poolscope_data_ptr_free(&buffer);
        CHECK(!buffer.data && !buffer.length && !buffer.deleter && !buffer.context);
    }
    memset(&buffer, 1, sizeof buffer);
    errno = 77;
    CHECK(poolscope_data_ptr_alloc(100, 48, &buffer) == EINVAL && !buffer.data && !buffer.deleter);
    memset(&buffer, 1, sizeof buffer);
    CHECK(poolscope_data_ptr_alloc(huge, 64, &buffer) == ENOMEM && !buffer.data && !buffer.deleter);
    memset(&buffer, 1, sizeof buffer);
    CHECK(poolscope_data_ptr_alloc(0, 64, &buffer) == 0 && !buffer.data && !buffer.deleter && errno == 77);
    poolscope_data_ptr_free(&buffer);
    poolscope_data_ptr_free(NULL);
}

static int deleted;

static void count_deletion(void *context) {
    deleted += *(int *)context;
}

static void a_buffer_is_freed_once_wherever_it_was_moved(void) {
    static int one = 1;
    char memory[4] = "abc";
    deleted = 0;
    poolscope_data_ptr a =
        poolscope_data_ptr_wrap(memory, sizeof memory, &one, count_deletion, POOLSCOPE_DEVICE_CUDA, 3);
    CHECK(a.data == memory && a.length == 4 && a.context == &one && a.deleter == count_deletion);
    CHECK(a.device_kind == POOLSCOPE_DEVICE_CUDA && a.device_index == 3);
    poolscope_data_ptr b = poolscope_data_ptr_move(&a);
    CHECK(!a.data && !a.deleter && a.device_kind == POOLSCOPE_DEVICE_HOST && b.data == memory && b.device_index == 3);
    poolscope_data_ptr_free(&a);
    CHECK(deleted == 0);
    poolscope_data_ptr_free(&b);
    poolscope_data_ptr_free(&b);
    CHECK(deleted == 1);

    poolscope_data_ptr borrowed = poolscope_data_ptr_wrap(memory, 4, NULL, NULL, POOLSCOPE_DEVICE_HOST, 0);
    poolscope_data_ptr_free(&borrowed);
    CHECK(memory[0] == 'a');
}

/* A list whose head's deleter frees the rest, and allocates on the way. */
struct node {
    poolscope_data_ptr next;
    const poolscope_data_ptr *place; /* where the buffer of this node lay when it was freed */
};

static void free_node(void *context) {
    struct node *node = context;
    CHECK(!node->place || (!node->place->deleter && !node->place->data));
    seen = poolscope_malloc(500);
    poolscope_free(seen);
    poolscope_data_ptr_free(&node->next);
    poolscope_free(node);
    deleted++;
}

static void a_deleter_may_free_other_buffers_and_finds_its_place_empty(void) {
    deleted = 0;
    poolscope_data_ptr head = POOLSCOPE_DATA_PTR_EMPTY;
    struct node *node = NULL;
    for (int i = 0; i < 100; i++) {
        node = poolscope_malloc(sizeof *node);
        node->next = poolscope_data_ptr_move(&head);
        node->place = NULL;
        head = poolscope_data_ptr_wrap(node, sizeof *node, node, free_node, POOLSCOPE_DEVICE_HOST, 0);
    }
    node->place = &head;
    poolscope_data_ptr_free(&head);
    CHECK(deleted == 100);
}

static void *free_in_thread(void *buffers) {
    poolscope_data_ptr *buffer = buffers;
    for (int i = 0; i < 1000; i++) poolscope_data_ptr_free(&buffer[i]);
    return NULL;
}

static void another_thread_may_free_a_buffer(void) {
    static poolscope_data_ptr buffers[1000];
    for (size_t i = 0; i < 1000; i++) CHECK(poolscope_data_ptr_alloc(i * 20, 64, &buffers[i]) == 0);
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, free_in_thread, buffers) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    for (int i = 0; i < 1000; i++) CHECK(!buffers[i].data);
}

static void what_has_no_text_is_refused(void) {
    CHECK(poolscope_dump(NULL) == EINVAL);
    CHECK(poolscope_serve(NULL) == EINVAL);
    CHECK(poolscope_label_in_use(NULL) == 0);
    CHECK(poolscope_label_limit(NULL, 1000, POOLSCOPE_OVER_WARN, NULL, NULL) == EINVAL);
    CHECK(poolscope_label_limit("", 1000, POOLSCOPE_OVER_WARN, NULL, NULL) == EINVAL);
    CHECK(poolscope_label_limit("called", 1000, POOLSCOPE_OVER_CALL, NULL, NULL) == EINVAL);
    poolscope_label_leave(poolscope_label_enter(NULL));
}

static void a_label_that_there_is_no_room_for_has_no_limit(void) {
    int had = 0;
    for (int i = 0; i < 100; i++) {
        char name[] = {'l', (char)('0' + i / 10), (char)('0' + i % 10), 0};
        int error = poolscope_label_limit(name, 1 << 20, POOLSCOPE_OVER_WARN, NULL, NULL);
        CHECK(error == (had < 64 ? 0 : EINVAL));
        had += !error;
    }
    CHECK(had == 64);
}

int main(void) {
#ifdef POOLSCOPE_WEAK
    if (!poolscope_version) {
        puts("no pool");
        return 0;
    }
#endif
    CHECK(strcmp(poolscope_version(), POOLSCOPE_VERSION) == 0);
    CHECK(sizeof(poolscope_data_ptr) == 40);
    CHECK(offsetof(poolscope_data_ptr, length) == 8 && offsetof(poolscope_data_ptr, context) == 16);
    CHECK(offsetof(poolscope_data_ptr, deleter) == 24 && offsetof(poolscope_data_ptr, device_kind) == 32);
    CHECK(offsetof(poolscope_data_ptr, device_index) == 36);
    blocks_have_their_size_and_are_aligned();
    realloc_keeps_the_contents();
    what_cannot_be_served_is_null_with_errno();
    both_families_are_one();
    free_memory_goes_back_to_the_kernel();
    settings_are_read_and_changed_by_name();
    statistics_are_cut_as_snprintf_cuts_them();
    a_reset_gives_back_what_is_unused_and_keeps_blocks();
    buffers_come_from_the_pool();
    a_buffer_is_freed_once_wherever_it_was_moved();
    a_deleter_may_free_other_buffers_and_finds_its_place_empty();
    another_thread_may_free_a_buffer();
    what_has_no_text_is_refused();
    a_label_that_there_is_no_room_for_has_no_limit();
    puts("on the pool");
    return failed_checks;
}
