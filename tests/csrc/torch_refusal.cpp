// Blocks that can't be had, as PyTorch sees them: exceptions of its own with the pool's words.
// -DC10 makes the library that has what they are made of; PyTorch's is called libc10.so, too. -DPLAIN leaves out all but
// the function that throws the one for everything.
#include <cstdint>
#include <cstdio>
#include <exception>
#include <stdexcept>
#include <string>
#include <typeinfo>
#include <vector>

#include <dlfcn.h>

#ifdef C10
#ifndef PLAIN
extern "C" { int errors_there = 0; }

namespace c10 {
struct SourceLocation {
    const char *function;
    const char *file;
    std::uint32_t line;
};

class Error : public std::exception {
    std::string words;
    std::vector<std::string> context;

  public:
    Error(SourceLocation at, std::string words);
    ~Error() override;
    const char *what() const noexcept override;
};

class OutOfMemoryError : public Error {
    using Error::Error;
};

Error::Error(SourceLocation at, std::string said) {
    words = std::string(at.function) + "|" + at.file + "|" + std::to_string(at.line) + "|" + std::move(said);
    context.push_back(words);
    errors_there++;
}
Error::~Error() { errors_there--; }
const char *Error::what() const noexcept { return words.c_str(); }

// As PyTorch's own allocator does: the library has the type then.
void throws_one() { throw OutOfMemoryError({"", "", 0}, ""); }
}
#endif

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

// Prints which exception it is the first time.
static int refused(std::size_t size, int device, int *unwound) {
    for (int round = 0; round < 3; round++) {
        try {
            Unwound guard{unwound};
            poolscope_torch_alloc(size, device, nullptr);
            std::puts("a block of a pebibyte was given out");
            return 1;
        } catch (const std::exception &error) {
            if (round == 0) std::printf("%s: %s\n", typeid(error).name(), error.what());
        }
        // What was thrown has gone.
        const int *there = static_cast<const int *>(dlsym(RTLD_DEFAULT, "errors_there"));
        if (there && *there != 0) return 2;
    }
    return 0;
}

int main() {
    int unwound = 0;
    if (int what = refused(std::size_t(1) << 50, 0, &unwound)) return what;
    if (int what = refused(4096, -1, &unwound)) return what;
    void *block = poolscope_torch_alloc(4096, 0, nullptr);
    poolscope_torch_free(block, 4096, 0, nullptr);
    return unwound == 6 && block ? 0 : 3;
}
#endif
