// A library that is loaded and unloaded while a program runs (life.c): it allocates when it comes and when it goes, and
// catches what operator new throws.

#include "scenarios.h"

#include <map>
#include <new>
#include <string>
#include <vector>

namespace {

struct Lifetime {
    std::vector<std::string> texts;
    Lifetime() {
        for (int i = 0; i < 200; i++) texts.emplace_back(static_cast<size_t>(i) * 10, 'x');
    }
    ~Lifetime() {
        texts.emplace_back(100000, 'y');
        for (size_t i = 0; i < 200; i++) CHECK(texts[i].size() == i * 10 && texts[i].find_first_not_of('x') == std::string::npos);
    }
};

Lifetime lifetime;
thread_local std::vector<int> of_thread(1000, 7);

} // namespace

extern "C" char *plugin_make(size_t size) {
    CHECK(of_thread.at(999) == 7);
    char *block = static_cast<char *>(malloc(size));
    fill(block, 5, size);
    return block;
}

extern "C" int plugin_catches_bad_alloc() {
    try {
        return ::operator new(hidden(static_cast<size_t>(1) << 62)) == nullptr ? 2 : 3;
    } catch (const std::bad_alloc &) {
        return 1;
    }
}

extern "C" void plugin_churns(int rounds) {
    std::map<int, std::string> kept;
    for (int i = 0; i < rounds; i++) kept[i * 31 % 500] = std::string(static_cast<size_t>(i) % 3000, 'z');
    CHECK(kept.size() == 500);
}
