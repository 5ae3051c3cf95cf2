// A block that can't be had, as PyTorch sees it: an exception with the pool's words, thrown by PyTorch's own function.
// -DC10 makes the library that has this function; PyTorch's is called libc10.so, too.
#include <cstdint>
#include <cstdio>
#include <stdexcept>
#include <string>

#ifdef C10
namespace c10::detail {
[[noreturn]] void torchCheckFail(const char *function, const char *file, std::uint32_t line, const char *words) {
    throw std::runtime_error(std::string(function) + "|" + file + "|" + std::to_string(line) + "|" + words);
}
}
#else
#include "poolscope_gpu.h"

struct Unwound {
    int *count;
    ~Unwound() { ++*count; }
};

int main() {
    int unwound = 0;
    for (int round = 0; round < 3; round++) {
        try {
            Unwound guard{&unwound};
            poolscope_torch_alloc(std::size_t(1) << 50, 0, nullptr);
            std::puts("a block of a pebibyte was given out");
            return 1;
        } catch (const std::runtime_error &error) {
            if (round == 0) std::puts(error.what());
        }
    }
    void *block = poolscope_torch_alloc(4096, 0, nullptr);
    poolscope_torch_free(block, 4096, 0, nullptr);
    return unwound == 3 && block ? 0 : 1;
}
#endif
