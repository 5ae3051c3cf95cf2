// Faults with operator new and delete, one for each name, as in faults.c.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <string>
#include <vector>

struct alignas(64) Aligned {
    char bytes[64];
};

static void *volatile kept;
static void *hidden(void *p) {
    kept = p;
    return kept;
}

int main(int argc, char **argv) {
    const char *fault = argc > 1 ? argv[1] : "";
    if (std::strcmp(fault, "wrong_size") == 0) {
        ::operator delete(hidden(::operator new(24)), std::size_t(32));
    } else if (std::strcmp(fault, "plain_delete_of_aligned") == 0) {
        ::operator delete(hidden(::operator new(64, std::align_val_t(64))));
    } else if (std::strcmp(fault, "aligned_delete_of_plain") == 0) {
        ::operator delete(hidden(::operator new(64)), std::align_val_t(64));
    } else if (std::strcmp(fault, "array_by_delete") == 0) {
        ::operator delete(hidden(::operator new[](24)));
    } else if (std::strcmp(fault, "one_by_delete_array") == 0) {
        ::operator delete[](hidden(::operator new(24)));
    } else if (std::strcmp(fault, "new_by_free") == 0) {
        std::free(hidden(::operator new(24)));
    } else if (std::strcmp(fault, "malloc_by_delete") == 0) {
        ::operator delete(hidden(std::malloc(24)));
    } else if (std::strcmp(fault, "double_delete") == 0) {
        void *p = ::operator new(24);
        ::operator delete(hidden(p));
        ::operator delete(hidden(p));
    } else if (std::strcmp(fault, "nothing") == 0) {
        std::vector<std::string> words;
        for (int i = 0; i < 10000; i++) words.push_back(std::string(i % 100, 'x'));
        auto one = std::make_unique<Aligned>();
        auto many = std::make_unique<Aligned[]>(10);
        auto strings = std::make_unique<std::string[]>(10);
        delete new (std::align_val_t(8)) char;
        ::operator delete(::operator new(24), std::size_t(24));
        ::operator delete(::operator new(24, std::align_val_t(8)), std::align_val_t(8));
        std::puts("ok");
    } else {
        std::fprintf(stderr, "usage: faults NAME\n");
        return 2;
    }
}
