// Small programs with one fault of memory each: `security KIND SIZE`; `security` alone prints all of them, one a line.
// scripts/security.sh counts what an allocator catches of them, tests/tests/security.rs holds what the pool does.
//
// A fault is caught if the program ends by a signal. Where nothing is at fault (whether a new block reads as zero, say)
// the program looks itself, and says `held` or `missed`.
#include <alloca.h>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <string>

typedef unsigned char byte;
static const size_t MIB = 1 << 20;
static const int MANY = 4096;

// The compiler must not see through what follows: it knows these faults, and what malloc does.
static void *volatile kept;
template <class T> static T *hidden(T *p) {
    kept = (void *)p;
    return (T *)kept;
}
static byte *allocating(size_t size) { return hidden((byte *)malloc(size)); }
static void freeing(void *p) { free(hidden(p)); }
// Changes the byte, whatever it is.
static void touching(byte *p) { *(volatile byte *)hidden(p) ^= 0x5a; }
static void reading(byte *p) { fputc(*(volatile byte *)hidden(p) ? 'x' : 'y', stderr); }
static void filling(byte *p, size_t size) {
    for (size_t at = 0; at < size; at++) ((volatile byte *)p)[at] = 'q';
}
static void recycling(size_t size, int times) {
    for (int i = 0; i < times; i++) freeing(allocating(size));
}
static void answer(bool held) {
    puts(held ? "held" : "missed");
    fflush(stdout);
    exit(0);
}
static bool is_zero(byte *p, size_t size) {
    for (size_t at = 0; at < size; at++)
        if (((volatile byte *)p)[at] != 0) return false;
    return true;
}

// One byte, so far behind the last one or before the first one.
template <long DISTANCE> static void one_byte(size_t size) {
    byte *p = allocating(size);
    touching(DISTANCE > 0 ? p + size - 1 + DISTANCE : p + DISTANCE);
    freeing(p);
}
// As many bytes as the block has and more, from its start; or as many as it has, from before its start.
template <long DISTANCE> static void copied(size_t size) {
    byte *p = allocating(size);
    if (DISTANCE > 0) filling(p, size + DISTANCE);
    else filling(p + DISTANCE, size);
    freeing(p);
}

static void double_free(size_t size) {
    byte *p = allocating(size);
    freeing(p);
    freeing(p);
}
static void double_free_around_another(size_t size) {
    byte *p = allocating(size), *q = allocating(size);
    freeing(p);
    freeing(q);
    freeing(p);
}
static void double_free_long_after(size_t size) {
    byte *p = allocating(size);
    freeing(p);
    recycling(size, 1000);
    freeing(p);
}
static void double_free_and_on(size_t size) {
    double_free(size);
    recycling(size, MANY);
}
static void double_free_of_used_again(size_t size) {
    byte *p = allocating(size);
    freeing(p);
    byte *q = allocating(size);
    freeing(p);
    freeing(q);
}

static void free_number(size_t) { freeing((void *)(uintptr_t)1); }
static void free_stack(size_t size) {
    byte array[64 + 256 * 1024];
    filling(array, size);
    freeing(array);
}
static void free_alloca(size_t size) {
    byte *p = (byte *)alloca(size);
    filling(p, size);
    freeing(p);
}
template <long DISTANCE> static void free_beside(size_t size) { freeing(allocating(size) + DISTANCE); }

static void run_data(size_t size) {
    byte *p = allocating(size);
    *p = 0xc3;
    ((void (*)())p)();
}
static void huge_request(size_t) { answer(allocating(SIZE_MAX - 1) == nullptr); }
static void same_again(size_t size) {
    byte *p = allocating(size);
    freeing(p);
    answer(allocating(size) != p);
}
static void smaller_again(size_t size) {
    byte *p = allocating(size);
    freeing(p);
    answer(allocating(size / 2) != p);
}
static void resized_in_place(size_t size) {
    byte *p = allocating(size);
    answer(hidden((byte *)realloc(p, size + size / 2)) != p);
}

static void read_empty(size_t) { reading(allocating(0)); }
static void read_empty_and_free(size_t) {
    byte *p = allocating(0);
    reading(p);
    freeing(p);
}
static void write_empty(size_t) { touching(allocating(0)); }
static void write_empty_and_free(size_t) {
    byte *p = allocating(0);
    touching(p);
    freeing(p);
}
static void write_freed(size_t size) {
    byte *p = allocating(size);
    freeing(p);
    filling(p, size);
}
static void write_freed_and_on(size_t size) {
    write_freed(size);
    recycling(size, MANY);
}
static void freed_reads_as_zero(size_t size) {
    byte *p = allocating(size);
    filling(p, size);
    freeing(p);
    answer(is_zero(p, size));
}
static void new_reads_as_zero(size_t size) { answer(is_zero(allocating(size), size)); }

static void new_array_delete(size_t size) { ::operator delete(hidden(::operator new[](size))); }
static void new_delete_array(size_t size) { ::operator delete[](hidden(::operator new(size))); }
static void array_of_strings_delete(size_t) { delete hidden(new std::string[8]); }
static void string_delete_array(size_t) { delete[] hidden(new std::string); }
static void delete_wrong_size(size_t size) { ::operator delete(hidden(::operator new(size)), size / 2); }
static void new_free(size_t size) { freeing(::operator new(size)); }
static void malloc_delete(size_t size) { ::operator delete(allocating(size)); }

static void nothing(size_t size) {
    freeing(allocating(size));
    answer(true);
}

static const struct {
    const char *kind;
    void (*run)(size_t);
    // 0: with each of the sizes.
    size_t size;
} CASES[] = {
    {"overflow-1", one_byte<1>, 0},
    {"overflow-32", one_byte<32>, 0},
    {"overflow-1M", one_byte<(long)MIB>, 0},
    {"overflow-copy-1", copied<1>, 0},
    {"overflow-copy-32", copied<32>, 0},
    {"overflow-copy-1M", copied<(long)MIB>, 0},
    {"underflow-1", one_byte<-1>, 0},
    {"underflow-32", one_byte<-32>, 0},
    {"underflow-1M", one_byte<-(long)MIB>, 0},
    {"underflow-copy-1", copied<-1>, 0},
    {"underflow-copy-32", copied<-32>, 0},
    {"underflow-copy-1M", copied<-(long)MIB>, 0},
    {"double-free", double_free, 0},
    {"double-free-around-another", double_free_around_another, 0},
    {"double-free-long-after", double_free_long_after, 0},
    {"double-free-and-on", double_free_and_on, 0},
    {"double-free-of-used-again", double_free_of_used_again, 0},
    {"free-number", free_number, 0},
    {"free-stack", free_stack, 0},
    {"free-alloca", free_alloca, 0},
    {"free-1-inside", free_beside<1>, 0},
    {"free-8-inside", free_beside<8>, 0},
    {"free-4K-behind", free_beside<4096>, 0},
    {"free-1G-behind", free_beside<1 << 30>, 0},
    {"run-data", run_data, 0},
    {"huge-request", huge_request, 0},
    {"same-again", same_again, 0},
    {"smaller-again", smaller_again, 0},
    {"resized-in-place", resized_in_place, 0},
    {"read-empty", read_empty, 0},
    {"read-empty-and-free", read_empty_and_free, 0},
    {"write-empty", write_empty, 0},
    {"write-empty-and-free", write_empty_and_free, 0},
    {"write-freed", write_freed, 0},
    {"write-freed-and-on", write_freed_and_on, 0},
    {"freed-reads-as-zero", freed_reads_as_zero, 0},
    {"new-reads-as-zero", new_reads_as_zero, 0},
    {"new-array-delete", new_array_delete, 4096},
    {"new-delete-array", new_delete_array, 4096},
    {"array-of-strings-delete", array_of_strings_delete, 256},
    {"string-delete-array", string_delete_array, 32},
    {"delete-wrong-size", delete_wrong_size, 4096},
    // Not counted: what is like those above, and no fault at all.
    {".new-free", new_free, 4096},
    {".malloc-delete", malloc_delete, 4096},
    {".nothing", nothing, 0},
};
static const size_t SIZES[] = {8, 4096, 256 * 1024};

int main(int argc, char **argv) {
    for (auto &one : CASES) {
        if (argc == 1 && *one.kind != '.') {
            if (one.size) printf("%s %zu\n", one.kind, one.size);
            else for (size_t size : SIZES) printf("%s %zu\n", one.kind, size);
        } else if (argc == 3 && strcmp(argv[1], one.kind) == 0) {
            one.run(strtoul(argv[2], nullptr, 10));
            puts("missed");
            return 0;
        }
    }
    return argc == 1 ? 0 : 2;
}
