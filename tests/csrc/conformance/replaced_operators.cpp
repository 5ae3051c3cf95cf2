// A program that replaces four of C++'s operators, and is promised that all others lead there (C++17, new.delete).
//
// usage: replaced_operators SCENARIO

#include "scenarios.h"

#include <functional>
#include <new>

namespace {

// Before each block of the program's own.
struct Head {
    size_t align;
    void *block;
    char mark[48];
};

constexpr char MARK[] = "a block of the program's own operator new";
constexpr size_t TOO_LARGE = static_cast<size_t>(1) << 40;

size_t news, deletes;

void *make(size_t size, size_t align) {
    if (size >= TOO_LARGE) throw std::bad_alloc();
    char *block = static_cast<char *>(malloc(size + sizeof(Head) + align));
    CHECK(block != nullptr);
    char *p = reinterpret_cast<char *>((reinterpret_cast<uintptr_t>(block) + sizeof(Head) + align - 1) & ~(align - 1));
    Head *head = reinterpret_cast<Head *>(p) - 1;
    head->align = align, head->block = block;
    strcpy(head->mark, MARK);
    news++;
    return p;
}

void end(void *p, size_t align) {
    if (p == nullptr) return;
    Head *head = static_cast<Head *>(p) - 1;
    CHECK(strcmp(head->mark, MARK) == 0 && head->align == align);
    head->mark[0] = 0;
    deletes++;
    free(head->block);
}

} // namespace

// The sized forms are left out, as older programs do.
#pragma GCC diagnostic ignored "-Wsized-deallocation"

void *operator new(size_t size) { return make(size, 16); }
void *operator new(size_t size, std::align_val_t align) { return make(size, static_cast<size_t>(align)); }
void operator delete(void *p) noexcept { end(p, 16); }
void operator delete(void *p, std::align_val_t align) noexcept { end(p, static_cast<size_t>(align)); }

namespace {

struct Form {
    const char *name;
    bool throws;
    std::function<void *(size_t)> allocate;
    std::function<void(void *, size_t)> free;
};

const std::align_val_t WIDE{256};

const Form FORMS[] = {
    {"new", true, [](size_t n) { return ::operator new(n); }, [](void *p, size_t) { ::operator delete(p); }},
    {"sized", true, [](size_t n) { return ::operator new(n); }, [](void *p, size_t n) { ::operator delete(p, n); }},
    {"new[]", true, [](size_t n) { return ::operator new[](n); }, [](void *p, size_t) { ::operator delete[](p); }},
    {"sized []", true, [](size_t n) { return ::operator new[](n); }, [](void *p, size_t n) { ::operator delete[](p, n); }},
    {"nothrow", false, [](size_t n) { return ::operator new(n, std::nothrow); }, [](void *p, size_t) { ::operator delete(p, std::nothrow); }},
    {"nothrow []", false, [](size_t n) { return ::operator new[](n, std::nothrow); }, [](void *p, size_t) { ::operator delete[](p, std::nothrow); }},
    {"aligned", true, [](size_t n) { return ::operator new(n, WIDE); }, [](void *p, size_t) { ::operator delete(p, WIDE); }},
    {"aligned, sized", true, [](size_t n) { return ::operator new(n, WIDE); }, [](void *p, size_t n) { ::operator delete(p, n, WIDE); }},
    {"aligned []", true, [](size_t n) { return ::operator new[](n, WIDE); }, [](void *p, size_t) { ::operator delete[](p, WIDE); }},
    {"aligned, sized []", true, [](size_t n) { return ::operator new[](n, WIDE); }, [](void *p, size_t n) { ::operator delete[](p, n, WIDE); }},
    {"aligned, nothrow", false, [](size_t n) { return ::operator new(n, WIDE, std::nothrow); }, [](void *p, size_t) { ::operator delete(p, WIDE, std::nothrow); }},
    {"aligned, nothrow []", false, [](size_t n) { return ::operator new[](n, WIDE, std::nothrow); }, [](void *p, size_t) { ::operator delete[](p, WIDE, std::nothrow); }},
};

void every_form() {
    for (const Form &form : FORMS) {
        for (size_t size = 1; size < 600000; size = next_size(size)) {
            size_t before = news;
            void *p = form.allocate(size);
            CHECK(p != nullptr && news == before + 1, "%s of %zu bytes", form.name, size);
            memset(p, 0xa5, size);
            form.free(p, size);
            CHECK(deletes == news, "%s of %zu bytes", form.name, size);
        }
    }
}

void what_is_thrown() {
    for (const Form &form : FORMS) {
        bool thrown = false;
        try {
            CHECK(form.allocate(hidden(TOO_LARGE)) == nullptr, "%s", form.name);
        } catch (const std::bad_alloc &) {
            thrown = true;
        }
        CHECK(thrown == form.throws, "%s", form.name);
    }
    CHECK(news == deletes);
}

const scenario SCENARIOS[] = {
    {"every-form", every_form},
    {"what-is-thrown", what_is_thrown},
};

} // namespace

MAIN(SCENARIOS)
