// C++'s operators: every form, and what they do without memory.
//
// usage: operators SCENARIO

#include "scenarios.h"

#include <functional>
#include <limits>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace {

constexpr size_t TOO_LARGE = static_cast<size_t>(1) << 62;

// One form of operator new with its delete.
struct Form {
    const char *name;
    bool throws;
    size_t align;
    std::function<void *(size_t)> allocate;
    std::function<void(void *, size_t)> free;
};

const std::align_val_t WIDE{256};

const Form FORMS[] = {
    {"new", true, 16, [](size_t n) { return ::operator new(n); }, [](void *p, size_t) { ::operator delete(p); }},
    {"new[]", true, 16, [](size_t n) { return ::operator new[](n); }, [](void *p, size_t) { ::operator delete[](p); }},
    {"new, sized delete", true, 16, [](size_t n) { return ::operator new(n); }, [](void *p, size_t n) { ::operator delete(p, n); }},
    {"new[], sized delete", true, 16, [](size_t n) { return ::operator new[](n); }, [](void *p, size_t n) { ::operator delete[](p, n); }},
    {"new(nothrow)", false, 16, [](size_t n) { return ::operator new(n, std::nothrow); }, [](void *p, size_t) { ::operator delete(p, std::nothrow); }},
    {"new[](nothrow)", false, 16, [](size_t n) { return ::operator new[](n, std::nothrow); }, [](void *p, size_t) { ::operator delete[](p, std::nothrow); }},
    {"aligned new", true, 256, [](size_t n) { return ::operator new(n, WIDE); }, [](void *p, size_t) { ::operator delete(p, WIDE); }},
    {"aligned new[]", true, 256, [](size_t n) { return ::operator new[](n, WIDE); }, [](void *p, size_t) { ::operator delete[](p, WIDE); }},
    {"aligned new, sized delete", true, 256, [](size_t n) { return ::operator new(n, WIDE); }, [](void *p, size_t n) { ::operator delete(p, n, WIDE); }},
    {"aligned new[], sized delete", true, 256, [](size_t n) { return ::operator new[](n, WIDE); }, [](void *p, size_t n) { ::operator delete[](p, n, WIDE); }},
    {"aligned new(nothrow)", false, 256, [](size_t n) { return ::operator new(n, WIDE, std::nothrow); }, [](void *p, size_t) { ::operator delete(p, WIDE, std::nothrow); }},
    {"aligned new[](nothrow)", false, 256, [](size_t n) { return ::operator new[](n, WIDE, std::nothrow); }, [](void *p, size_t) { ::operator delete[](p, WIDE, std::nothrow); }},
};

void every_form() {
    for (const Form &form : FORMS) {
        for (size_t size = 0; size < 600000; size = next_size(size)) {
            void *a = form.allocate(size), *b = form.allocate(size);
            CHECK(a != nullptr && a != b && is_aligned(a, form.align) && is_aligned(b, form.align), "%s of %zu bytes", form.name, size);
            memset(a, 1, size);
            memset(b, 2, size);
            CHECK(size == 0 || static_cast<char *>(a)[size - 1] == 1, "%s of %zu bytes", form.name, size);
            form.free(a, size);
            form.free(b, size);
        }
        form.free(nullptr, 0);
    }
    ::operator delete(std::unique_ptr<std::string>(new std::string(1000, 'x')) ? ::operator new(10) : nullptr);
}

// What a failed request comes to: 'b' for std::bad_alloc, 'n' for null, 'o' for another exception, 'p' for a block.
char outcome(const Form &form, size_t size) {
    try {
        void *p = form.allocate(hidden(size));
        if (p == nullptr) return 'n';
        form.free(p, size);
        return 'p';
    } catch (const std::bad_alloc &) {
        return 'b';
    } catch (...) {
        return 'o';
    }
}

void without_memory() {
    CHECK(std::get_new_handler() == nullptr);
    for (const Form &form : FORMS) {
        for (size_t size : {TOO_LARGE, static_cast<size_t>(PTRDIFF_MAX), std::numeric_limits<size_t>::max() - 300}) {
            char expected = form.throws ? 'b' : 'n', got = outcome(form, size);
            CHECK(got == expected, "%s of %zu bytes: %c", form.name, size, got);
        }
    }
    bool caught = false;
    try {
        std::vector<double> vector(hidden(static_cast<size_t>(1) << 50));
    } catch (const std::bad_alloc &) {
        caught = true;
    }
    CHECK(caught);
    try {
        volatile size_t count = std::numeric_limits<size_t>::max() / 4;
        delete[] new double[count];
        CHECK(false, "an array longer than all memory");
    } catch (const std::bad_array_new_length &) {
    }
}

int calls;

void handler_that_gives_up() {
    if (++calls == 3) std::set_new_handler(nullptr);
}
void handler_that_throws() {
    calls++;
    throw std::bad_alloc();
}
struct Other {};
void handler_that_throws_another() {
    calls++;
    throw Other();
}

void new_handlers() {
    for (const Form &form : FORMS) {
        calls = 0;
        std::set_new_handler(handler_that_gives_up);
        char got = outcome(form, TOO_LARGE);
        CHECK(calls == 3 && got == (form.throws ? 'b' : 'n'), "%s: %d calls, %c", form.name, calls, got);

        calls = 0;
        std::set_new_handler(handler_that_throws);
        got = outcome(form, TOO_LARGE);
        CHECK(calls == 1 && got == (form.throws ? 'b' : 'n'), "%s: %d calls, %c", form.name, calls, got);

        // An exception of the program's own goes through, and through the nothrow forms it can't: they make null of it.
        calls = 0;
        std::set_new_handler(handler_that_throws_another);
        got = outcome(form, TOO_LARGE);
        CHECK(calls == 1 && got == (form.throws ? 'o' : 'n'), "%s: %d calls, %c", form.name, calls, got);
        std::set_new_handler(nullptr);
    }
}

// What the handler frees is what the request needs.
std::vector<void *> cached;
void handler_that_frees() {
    calls++;
    if (cached.empty()) throw std::bad_alloc();
    for (int i = 0; i < 40 && !cached.empty(); i++) {
        free(cached.back());
        cached.pop_back();
    }
}

void handlers_that_free() {
    constexpr size_t BLOCK = 1 << 20;
    cached.reserve(100000);
    for (void *p; (p = malloc(BLOCK)) != nullptr;) cached.push_back(p);
    CHECK(cached.size() > 50, "the test limits the address space; %zu blocks", cached.size());
    std::set_new_handler(handler_that_frees);
    size_t before = cached.size();
    for (const Form &form : {FORMS[0], FORMS[4], FORMS[6], FORMS[10]}) {
        calls = 0;
        void *p = form.allocate(24 * BLOCK);
        CHECK(p != nullptr && calls > 0, "%s: %d calls", form.name, calls);
        form.free(p, 24 * BLOCK);
        for (void *q; (q = malloc(BLOCK)) != nullptr;) cached.push_back(q);
    }
    CHECK(cached.size() + 60 > before, "%zu blocks before, %zu after", before, cached.size());
    for (void *p : cached) free(p);
}

void in_threads() {
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; i++) {
        threads.emplace_back([] {
            for (int round = 0; round < 300; round++) {
                for (const Form &form : FORMS) CHECK(outcome(form, TOO_LARGE) == (form.throws ? 'b' : 'n'), "%s", form.name);
                std::string text(static_cast<size_t>(round), 'x');
                CHECK(text.size() == static_cast<size_t>(round));
            }
        });
    }
    for (std::thread &thread : threads) thread.join();
}

int destroyed;

// Destroyed after the thread's function has returned, in the order that C++ asks for, while each of them allocates.
struct OfThread {
    std::vector<std::string> texts;
    ~OfThread() {
        for (int i = 0; i < 50; i++) texts.emplace_back(static_cast<size_t>(i) * 100, 'd');
        for (size_t i = 0; i < 50; i++) CHECK(texts[texts.size() - 50 + i].size() == i * 100);
        __atomic_fetch_add(&destroyed, 1, __ATOMIC_RELAXED);
    }
};
thread_local OfThread first, second;

void objects_of_threads() {
    for (int round = 0; round < 50; round++) {
        std::vector<std::thread> threads;
        for (int i = 0; i < 4; i++) {
            threads.emplace_back([round] {
                for (int j = 0; j < 30; j++) {
                    first.texts.emplace_back(static_cast<size_t>(round * j), 'f');
                    second.texts.emplace_back(static_cast<size_t>(j), 's');
                }
            });
        }
        for (std::thread &thread : threads) thread.join();
    }
    CHECK(destroyed == 50 * 4 * 2, "%d destroyed", destroyed);
}

const scenario SCENARIOS[] = {
    {"every-form", every_form},
    {"without-memory", without_memory},
    {"new-handlers", new_handlers},
    {"handlers-that-free", handlers_that_free},
    {"in-threads", in_threads},
    {"objects-of-threads", objects_of_threads},
};

} // namespace

MAIN(SCENARIOS)
