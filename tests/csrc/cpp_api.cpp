// What the headers promise to C++: the class data_ptr, and the memory resource. Linked with the library, or built with
// POOLSCOPE_WEAK; without the library, the resource falls back to new and delete.
#include "poolscope_memory_resource.hpp"

#include <cstdint>
#include <cstring>
#include <string>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "check.h"

namespace {

bool with_pool = true;

// The pool ends the program on an address that is not its own.
bool from_pool(const void *block) { return !with_pool || poolscope_usable_size(block) > 0; }

int deleted = 0;
poolscope_data_ptr counted() {
    return poolscope_data_ptr_wrap(nullptr, 0, nullptr, [](void *) { deleted++; }, POOLSCOPE_DEVICE_HOST, 0);
}

void a_buffer_is_freed_at_the_end_of_its_scope() {
    {
        poolscope::data_ptr buffer(counted());
        poolscope::data_ptr moved(std::move(buffer));
        CHECK(deleted == 0 && !buffer.deleter() && moved.deleter());
        buffer = std::move(moved);
        poolscope::data_ptr &self = buffer;
        buffer = std::move(self);
        CHECK(deleted == 0 && buffer.deleter());
        buffer = poolscope::data_ptr(counted());
        CHECK(deleted == 1);
        buffer.reset(counted());
        CHECK(deleted == 2);
        buffer.reset();
        CHECK(deleted == 3 && !buffer.deleter());
    }
    CHECK(deleted == 3);

    std::vector<poolscope::data_ptr> many;
    for (int i = 0; i < 100; i++) many.emplace_back(counted());
    many.erase(many.begin() + 10, many.begin() + 20);
    CHECK(deleted == 13);
    poolscope_data_ptr released = many.back().release();
    many.clear();
    CHECK(deleted == 102);
    poolscope_data_ptr_free(&released);
    CHECK(deleted == 103);
}

void a_buffer_of_the_pool_is_aligned_memory() {
    auto tensor = poolscope::data_ptr::allocate(1000 * sizeof(float), 256);
    CHECK(tensor && tensor.size() == 4000 && reinterpret_cast<std::uintptr_t>(tensor.get()) % 256 == 0);
    CHECK(tensor.device_kind() == POOLSCOPE_DEVICE_HOST && tensor.device_index() == 0);
    tensor.as<float>()[999] = 1.5F;
    CHECK(from_pool(tensor.get()));
    // Who takes the context does what the deleter would have done.
    CHECK(tensor.context() == tensor.get());
    poolscope_free(tensor.release_context());
    CHECK(!tensor && tensor.size() == 0);

    bool thrown = false;
    try {
        poolscope::data_ptr::allocate(SIZE_MAX / 2);
    } catch (const std::bad_alloc &) {
        thrown = true;
    }
    CHECK(thrown);
    thrown = false;
    try {
        poolscope::data_ptr::allocate(100, 48);
    } catch (const std::invalid_argument &) {
        thrown = true;
    }
    CHECK(thrown);
}

void containers_take_their_memory_from_the_pool() {
    std::pmr::vector<std::uint64_t> squares(poolscope::pool_resource());
    for (std::uint64_t n = 0; n < 100000; n++) squares.push_back(n * n);
    CHECK(from_pool(squares.data()) && squares[99999] == 99999ULL * 99999ULL);

    std::pmr::unordered_map<int, std::pmr::string> names(poolscope::pool_resource());
    for (int n = 0; n < 10000; n++) names[n] = "the name of number " + std::to_string(n);
    for (int n = 0; n < 10000; n += 2) names.erase(n);
    CHECK(names.size() == 5000 && names[777] == "the name of number 777" && from_pool(names[777].data()));

    struct alignas(4096) Page {
        char bytes[4096];
    };
    std::pmr::vector<Page> pages(10, poolscope::pool_resource());
    CHECK(from_pool(pages.data()) && reinterpret_cast<std::uintptr_t>(pages.data()) % 4096 == 0);
}

// Notes what it passes on: where a resource gets its memory.
class Watch : public std::pmr::memory_resource {
public:
    int live = 0, calls = 0;

private:
    void *do_allocate(std::size_t bytes, std::size_t align) override {
        void *block = poolscope::pool_resource()->allocate(bytes, align);
        CHECK(from_pool(block));
        live++, calls++;
        return block;
    }
    void do_deallocate(void *block, std::size_t bytes, std::size_t align) override {
        live--;
        poolscope::pool_resource()->deallocate(block, bytes, align);
    }
    bool do_is_equal(const std::pmr::memory_resource &other) const noexcept override { return this == &other; }
};

void other_resources_stand_on_it() {
    Watch watch;
    {
        std::pmr::monotonic_buffer_resource arena(1000, &watch);
        std::pmr::synchronized_pool_resource shared(&watch);
        std::pmr::vector<std::pmr::string> lines(&arena);
        for (int n = 0; n < 1000; n++) lines.emplace_back("a line that is too long for the string itself");
        std::vector<std::thread> threads;
        for (int t = 0; t < 4; t++) {
            threads.emplace_back([&shared] {
                std::pmr::vector<std::pmr::string> words(&shared);
                for (int n = 0; n < 1000; n++) words.emplace_back(static_cast<std::size_t>(n), 'w');
            });
        }
        for (auto &thread : threads) thread.join();
        CHECK(watch.calls > 4);
    }
    CHECK(watch.live == 0);
}

void every_power_of_two_is_an_alignment() {
    auto *pool = poolscope::pool_resource();
    for (std::size_t align = 1; align <= std::size_t(1) << 20; align *= 2) {
        for (std::size_t bytes : {std::size_t(0), std::size_t(1), align - 1, align + 1, std::size_t(300000)}) {
            void *block = pool->allocate(bytes, align);
            CHECK(block && reinterpret_cast<std::uintptr_t>(block) % align == 0 && from_pool(block));
            std::memset(block, 1, bytes);
            pool->deallocate(block, bytes, align);
        }
    }
}

void a_failed_allocation_throws() {
    volatile std::size_t huge = SIZE_MAX / 2;
    bool thrown = false;
    try {
        static_cast<void>(poolscope::pool_resource()->allocate(huge, 64));
    } catch (const std::bad_alloc &) {
        thrown = true;
    }
    CHECK(thrown);
}

void every_resource_of_the_pool_is_the_same_pool() {
    poolscope::memory_resource other;
    CHECK(*poolscope::pool_resource() == other);
    CHECK(*poolscope::pool_resource() != *std::pmr::new_delete_resource());
    void *block = other.allocate(100, 16);
    std::thread([block] { poolscope::pool_resource()->deallocate(block, 100, 16); }).join();
}

} // namespace

int main() {
#ifdef POOLSCOPE_WEAK
    with_pool = poolscope_version != nullptr;
#endif
    if (with_pool) {
        a_buffer_is_freed_at_the_end_of_its_scope();
        a_buffer_of_the_pool_is_aligned_memory();
    }
    containers_take_their_memory_from_the_pool();
    other_resources_stand_on_it();
    every_power_of_two_is_an_alignment();
    a_failed_allocation_throws();
    every_resource_of_the_pool_is_the_same_pool();
    std::puts(with_pool ? "on the pool" : "no pool");
    return failed_checks;
}
