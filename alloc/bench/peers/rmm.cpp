// RMM's resources: pool, arena, binning and the driver's pool as RMM uses it.

#include "peer.h"

#include <rmm/cuda_device.hpp>
#include <rmm/mr/arena_memory_resource.hpp>
#include <rmm/mr/binning_memory_resource.hpp>
#include <rmm/mr/cuda_async_memory_resource.hpp>
#include <rmm/mr/cuda_memory_resource.hpp>
#include <rmm/mr/pool_memory_resource.hpp>
#include <rmm/version_config.hpp>

#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>

namespace {

using resource = cuda::mr::any_resource<cuda::mr::device_accessible>;

thread_local std::string last_error;
std::optional<resource> current;
std::function<std::size_t()> peak = [] { return std::size_t{0}; };

template <typename Work> auto guarded(Work work) -> decltype(work()) {
  try {
    return work();
  } catch (std::exception const &error) {
    last_error = error.what();
  } catch (...) {
    last_error = "an exception that says nothing";
  }
  return {};
}

// It grows from little: what it holds in the end is what the program made it take. It never gives anything back.
auto pool() { return rmm::mr::pool_memory_resource{rmm::mr::cuda_memory_resource{}, std::size_t{2} << 20}; }

bool open(std::string const &name) {
  peak = [] { return std::size_t{0}; };
  if (name == "rmm-pool") {
    auto it = pool();
    peak = [it] { return it.pool_size(); };
    current.emplace(it);
  } else if (name == "rmm-binning") {
    auto it = pool();
    peak = [it] { return it.pool_size(); };
    // The bins of RMM's own benchmarks: 256 KiB to 4 MiB.
    current.emplace(rmm::mr::binning_memory_resource{it, 18, 22});
  } else if (name == "rmm-arena") {
    // Without a size it takes half of what is free; 32 GiB hold every row.
    current.emplace(rmm::mr::arena_memory_resource{rmm::mr::cuda_memory_resource{}, std::size_t{32} << 30});
  } else if (name == "rmm-async") {
    rmm::mr::cuda_async_memory_resource it{};
    peak = [it] {
      cuuint64_t bytes = 0;
      cudaMemPoolGetAttribute(it.pool_handle(), cudaMemPoolAttrReservedMemHigh, &bytes);
      return static_cast<std::size_t>(bytes);
    };
    current.emplace(it);
  } else {
    last_error = "RMM has no resource " + name;
    return false;
  }
  return true;
}

} // namespace

PEER int peer_open(const char *name, int device) {
  return guarded([&] {
           if (cudaSetDevice(device) != cudaSuccess) {
             last_error = "the device can't be opened";
             return false;
           }
           return open(name);
         })
             ? 0
             : 1;
}

PEER void peer_close(void) {
  peak = [] { return std::size_t{0}; };
  current.reset();
}

PEER void *peer_allocate(size_t bytes, void *stream) {
  return guarded([&] {
    return current->allocate(cuda::stream_ref{static_cast<cudaStream_t>(stream)}, bytes, std::size_t{256});
  });
}

PEER void peer_free(void *address, size_t bytes, void *stream) {
  current->deallocate(cuda::stream_ref{static_cast<cudaStream_t>(stream)}, address, bytes, std::size_t{256});
}

PEER size_t peer_peak_reserved(void) { return peak(); }

PEER const char *peer_error(void) { return last_error.c_str(); }

#define TEXT(x) #x
#define DIGITS(x) TEXT(x)

PEER const char *peer_version(void) { return DIGITS(RMM_VERSION_MAJOR) "." DIGITS(RMM_VERSION_MINOR); }
