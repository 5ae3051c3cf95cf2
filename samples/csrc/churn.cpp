// A program that does little but allocate: churn PAIRS [THREADS]
//
// Each thread keeps 10,000 blocks of 16 to 1,024 bytes and replaces a random one PAIRS times, from one of 256 call paths
// that are 14 to 19 functions deep. Build it with and without -fno-omit-frame-pointer to see what that is worth to a profiler.
// Prints the time that a pair of malloc and free took, in nanoseconds.
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <thread>
#include <vector>

namespace {

constexpr std::size_t LIVE = 10000;

// Code after each call keeps the compiler from turning it into a jump.
#define KEEP asm volatile("" ::: "memory")

struct Random {
    std::uint64_t state;
    std::uint32_t next() {
        state = state * 6364136223846793005u + 1442695040888963407u;
        return static_cast<std::uint32_t>(state >> 33);
    }
};

__attribute__((noinline)) void *leaf(std::size_t size) {
    void *block = std::malloc(size);
    KEEP;
    return block;
}

// One to six functions more.
__attribute__((noinline)) void *more(unsigned to_go, std::size_t size) {
    void *block = to_go == 0 ? leaf(size) : more(to_go - 1, size);
    KEEP;
    return block;
}

// Four times one of four functions: 256 paths.
void *descend(unsigned path, unsigned depth, std::size_t size);

template <int which>
__attribute__((noinline)) void *step(unsigned path, unsigned depth, std::size_t size) {
    void *block = depth == 0 ? more(1 + path / 4 % 6, size) : descend(path, depth, size);
    KEEP;
    return block;
}

__attribute__((always_inline)) inline void *descend(unsigned path, unsigned depth, std::size_t size) {
    switch (path >> (2 * (depth - 1)) & 3) {
        case 0: return step<0>(path, depth - 1, size);
        case 1: return step<1>(path, depth - 1, size);
        case 2: return step<2>(path, depth - 1, size);
        default: return step<3>(path, depth - 1, size);
    }
}

__attribute__((noinline)) void *allocate(unsigned path, std::size_t size) {
    void *block = descend(path, 4, size);
    KEEP;
    return block;
}

void churn(std::uint64_t pairs, unsigned seed) {
    Random random{seed * 2654435761u + 1u};
    auto size = [&random] { return (random.next() % 64 + 1) * 16; };
    std::vector<void *> live(LIVE);
    for (void *&block : live) block = allocate(random.next() % 256, size());
    for (std::uint64_t pair = 0; pair < pairs; pair++) {
        void *&block = live[random.next() % LIVE];
        std::free(block);
        block = allocate(random.next() % 256, size());
        *static_cast<volatile char *>(block) = 1;
    }
    for (void *block : live) std::free(block);
}

}  // namespace

int main(int argc, char **argv) {
    const std::uint64_t pairs = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 4000000;
    const unsigned threads = argc > 2 ? static_cast<unsigned>(std::strtoul(argv[2], nullptr, 10)) : 1;
    const auto begin = std::chrono::steady_clock::now();
    if (threads <= 1) {
        churn(pairs, 1);
    } else {
        std::vector<std::thread> all;
        for (unsigned thread = 0; thread < threads; thread++) all.emplace_back(churn, pairs / threads, thread + 1);
        for (std::thread &one : all) one.join();
    }
    const auto end = std::chrono::steady_clock::now();
    const double ns = std::chrono::duration<double, std::nano>(end - begin).count();
    const double processor_ns = 1e9 * static_cast<double>(std::clock()) / CLOCKS_PER_SEC;
    std::printf("%.1f ns a pair, %.1f ns of processor time\n", ns / static_cast<double>(pairs),
                processor_ns / static_cast<double>(pairs));
}
