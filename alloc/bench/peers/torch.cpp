// PyTorch's caching allocator, by the C++ interface of libc10_cuda. Whether it is the native or the expandable one is read from
// PYTORCH_CUDA_ALLOC_CONF when the library is loaded.

#include "peer.h"

#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <torch/headeronly/version.h>

#include <exception>
#include <string>

namespace {

namespace caching = c10::cuda::CUDACachingAllocator;

thread_local std::string last_error;
int opened = 0;

} // namespace

PEER int peer_open(const char *, int device) {
  try {
    opened = device;
    c10::cuda::set_device(static_cast<c10::DeviceIndex>(device));
    if (!caching::get()->initialized()) {
      caching::init(c10::cuda::device_count());
    }
    caching::emptyCache();
    caching::resetPeakStats(static_cast<c10::DeviceIndex>(device));
    return 0;
  } catch (std::exception const &error) {
    last_error = error.what();
    return 1;
  }
}

PEER void peer_close(void) {
  try {
    caching::emptyCache();
  } catch (std::exception const &error) {
    last_error = error.what();
  }
}

PEER void *peer_allocate(size_t bytes, void *stream) {
  try {
    return caching::raw_alloc_with_stream(bytes, static_cast<cudaStream_t>(stream));
  } catch (std::exception const &error) {
    last_error = error.what();
    return nullptr;
  }
}

PEER void peer_free(void *address, size_t, void *) { caching::raw_delete(address); }

PEER size_t peer_peak_reserved(void) {
  auto const stats = caching::getDeviceStats(static_cast<c10::DeviceIndex>(opened));
  return static_cast<size_t>(stats.reserved_bytes[0].peak);
}

PEER const char *peer_error(void) { return last_error.c_str(); }

PEER const char *peer_version(void) { return TORCH_VERSION; }
