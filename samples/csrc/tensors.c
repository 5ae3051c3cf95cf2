/* Tensors on their way through a program, as owned buffers: a producer makes them, a thread consumes and frees them, and
 * neither knows where the other's memory comes from. Some lie in the pool, some in a mapped file.
 *
 *     cc tensors.c $(pkg-config --cflags --libs poolscope) -pthread
 *     ./a.out tensors.c
 */
#include <poolscope.h>

#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { TENSORS = 64, ELEMENTS = 10000 };

static poolscope_data_ptr queue[TENSORS + 1];

/* A file's contents need munmap and its length: the context carries both. */
struct mapping {
    void *address;
    size_t length;
};

static void unmap(void *context) {
    struct mapping *mapping = context;
    munmap(mapping->address, mapping->length);
    poolscope_free(mapping);
    puts("tensors: the file was unmapped");
}

static poolscope_data_ptr map_file(const char *path) {
    struct stat status;
    int file = open(path, O_RDONLY);
    if (file < 0 || fstat(file, &status) != 0) {
        perror(path);
        exit(1);
    }
    struct mapping *mapping = poolscope_malloc(sizeof *mapping);
    if (!mapping) abort();
    mapping->length = (size_t)status.st_size;
    mapping->address = mmap(NULL, mapping->length, PROT_READ, MAP_PRIVATE, file, 0);
    if (mapping->address == MAP_FAILED) {
        perror(path);
        exit(1);
    }
    close(file);
    return poolscope_data_ptr_wrap(mapping->address, mapping->length, mapping, unmap, POOLSCOPE_DEVICE_HOST, 0);
}

static void *consume(void *unused) {
    (void)unused;
    uint64_t sum = 0;
    for (int i = 0; i < TENSORS + 1; i++) {
        const unsigned char *bytes = queue[i].data;
        for (size_t k = 0; k < queue[i].length; k++) sum += bytes[k];
        poolscope_data_ptr_free(&queue[i]);
    }
    printf("tensors: the bytes' sum is %llu\n", (unsigned long long)sum);
    return NULL;
}

int main(int argc, char **argv) {
    for (int i = 0; i < TENSORS; i++) {
        poolscope_data_ptr tensor;
        /* 64 bytes: a cache line, and what vector instructions like. */
        int error = poolscope_data_ptr_alloc(ELEMENTS * sizeof(float), 64, &tensor);
        if (error != 0) {
            fprintf(stderr, "tensors: %s\n", strerror(error));
            return 1;
        }
        memset(tensor.data, i, tensor.length);
        queue[i] = poolscope_data_ptr_move(&tensor);
    }
    if (argc > 1) queue[TENSORS] = map_file(argv[1]);

    pthread_t consumer;
    if (pthread_create(&consumer, NULL, consume, NULL) != 0) return 1;
    pthread_join(consumer, NULL);
    printf("tensors: poolscope %s gave %zu bytes back to the kernel\n", poolscope_version(),
           poolscope_release_free_memory());
    return 0;
}
