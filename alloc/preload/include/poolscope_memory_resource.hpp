// poolscope_memory_resource.hpp - the pool as a std::pmr::memory_resource (C++17).
//
//     std::pmr::vector<float> weights(poolscope::pool_resource());
//
//     std::pmr::monotonic_buffer_resource request(64 << 10, poolscope::pool_resource());
//     std::pmr::unordered_map<int, std::pmr::string> headers(&request);
//
// The program is linked with -lpoolscope. With POOLSCOPE_WEAK defined it is built without the library and takes the pool
// if the library is preloaded, and std::pmr::new_delete_resource() otherwise.
#ifndef POOLSCOPE_MEMORY_RESOURCE_HPP
#define POOLSCOPE_MEMORY_RESOURCE_HPP

#include <cstddef>
#include <memory_resource>
#include <new>

#include "poolscope.h"

namespace poolscope {

// Memory of the pool at any power of two. All objects of this class are equal: what one allocated, another may free, on
// any thread.
class memory_resource : public std::pmr::memory_resource {
private:
    void *do_allocate(std::size_t bytes, std::size_t align) override {
#ifdef POOLSCOPE_WEAK
        if (!poolscope_aligned_alloc) return std::pmr::new_delete_resource()->allocate(bytes, align);
#endif
        void *block = poolscope_aligned_alloc(align, bytes);
        if (!block) throw std::bad_alloc();
        return block;
    }

    void do_deallocate(void *block, std::size_t bytes, std::size_t align) override {
#ifdef POOLSCOPE_WEAK
        if (!poolscope_free_aligned_sized) return std::pmr::new_delete_resource()->deallocate(block, bytes, align);
#endif
        poolscope_free_aligned_sized(block, align, bytes);
    }

    bool do_is_equal(const std::pmr::memory_resource &other) const noexcept override {
#ifdef __cpp_rtti
        return dynamic_cast<const memory_resource *>(&other) != nullptr;
#else
        return this == &other;
#endif
    }
};

// The one object that most programs need. It is never destroyed, so that containers may outlive main.
inline memory_resource *pool_resource() noexcept {
    alignas(memory_resource) static unsigned char storage[sizeof(memory_resource)];
    static memory_resource *const resource = ::new (static_cast<void *>(storage)) memory_resource;
    return resource;
}

} // namespace poolscope

#endif
