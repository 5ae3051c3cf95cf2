// The library that stress.cpp loads and unloads: allocates on load, when called, and on unload.

#include <stdexcept>
#include <string>
#include <vector>

namespace {

struct Registry {
    std::vector<std::string> names;
    Registry() {
        for (int i = 0; i < 50; i++) names.push_back("a name long enough to be allocated, number " + std::to_string(i));
    }
    ~Registry() { names.clear(); }
} registry;

[[gnu::noinline]] int descend(int depth) {
    std::string here(40 + depth, 'x');
    if (depth == 0) throw std::runtime_error("thrown in the plugin: " + here);
    return descend(depth - 1) + static_cast<int>(here.size());
}

}  // namespace

// Throws through `depth` frames of this library and catches it here. Returns the number of registered names.
extern "C" int plugin_work(int depth) {
    try {
        return descend(depth);
    } catch (const std::exception &) {
        return static_cast<int>(registry.names.size());
    }
}
