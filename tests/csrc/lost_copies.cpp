// Loses what the C library, inlined functions and constructors allocated: names that tools have differently.
#include <cstring>
#include <memory>

struct node {
    std::shared_ptr<node> next;
};

__attribute__((noinline)) static void lose() {
    for (int i = 0; i < 10; i++) {
        char *volatile copy = strdup("hello");
        (void)copy;
    }
    long *volatile inlined = std::allocator<long>().allocate(5);
    (void)inlined;
    // A constructor has two symbols.
    auto cycle = std::make_shared<node>();
    cycle->next = cycle;
}

__attribute__((noinline)) static void scrub() {
    volatile char bytes[16384];
    for (char volatile &byte : bytes) byte = 0;
}

int main() {
    lose();
    scrub();
}
