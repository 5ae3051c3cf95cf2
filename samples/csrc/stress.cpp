// Everything at once that an allocator with backtraces can trip over:
//
//   - threads that load and unload a library in a loop (stress_plugin.cpp);
//   - threads that throw C++ exceptions through many frames;
//   - threads that allocate, check every byte and free, also each other's blocks;
//   - a thread that forks children, which allocate, check and exit;
//   - a timer every 500 us whose signal handler allocates and frees. POSIX forbids that, real programs do it. The
//     handler uses a size of its own, 3000 bytes, and only one handler runs at a time.
//
// usage: stress PLUGIN SECONDS [--no-signal]
//
// Ends with 0 if everything was consistent, with 1 after the first inconsistency, with 3 if a thread made no
// progress for 20 seconds (the message names it), with 2 if it could not start. `--no-signal` leaves the timer out, for
// allocators that keep to POSIX: glibc's deadlocks in the handler.

#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <functional>
#include <malloc.h>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <sys/time.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;

std::atomic<bool> stopping{false};
std::atomic<unsigned long> signals_handled{0};

// A message without stdio or malloc, then the end: what failed may be the allocator itself.
[[noreturn]] void fail(const char *what, int code = 1) {
    ssize_t ignored = write(2, "stress: ", 8);
    ignored = write(2, what, strlen(what));
    ignored = write(2, "\n", 1);
    (void)ignored;
    _exit(code);
}

bool all_bytes_are(const unsigned char *at, unsigned char value, size_t size) {
    return at[0] == value && memcmp(at, at + 1, size - 1) == 0;
}

uint64_t next_random(uint64_t &state) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}

// ---------------------------------------------------------------------------------------------------------------
// The signal handler

constexpr size_t HANDLER_SIZE = 3000;

// Sizes that an allocator may round up to the same class as the handler's: nothing else here allocates any of them. (What
// interrupts an allocator's fast path and takes a block of the same class breaks every allocator's list.)
bool handlers_own(size_t size) { return size > 2048 && size <= 4096; }

// Only one thread may be in the handler: the size is the handler's alone, and two handlers at once would share it.
std::atomic_flag in_handler = ATOMIC_FLAG_INIT;

void on_alarm(int) {
    int saved = errno;
    if (!in_handler.test_and_set()) {
        unsigned char *block = static_cast<unsigned char *>(malloc(HANDLER_SIZE));
        if (!block) fail("the handler got no memory");
        memset(block, 0x5a, HANDLER_SIZE);
        if (!all_bytes_are(block, 0x5a, HANDLER_SIZE)) fail("the handler's block was overwritten");
        free(block);
        signals_handled++;
        in_handler.clear();
    }
    errno = saved;
}

void start_timer() {
    struct sigaction action = {};
    action.sa_handler = on_alarm;
    action.sa_flags = SA_RESTART;
    sigaction(SIGALRM, &action, nullptr);
    itimerval every = {{0, 500}, {0, 500}};
    setitimer(ITIMER_REAL, &every, nullptr);
}

// ---------------------------------------------------------------------------------------------------------------
// Blocks with checked contents

class Block {
public:
    explicit Block(uint64_t random) {
        static const size_t small[] = {8, 24, 64, 100, 256, 700, 1500, 5000};
        static const size_t large[] = {20000, 100000, 400000};
        size_ = (random >> 4) % 50 == 0 ? large[random % 3] : small[random % 8];
        size_ += (random >> 8) % 8;
        fill_ = static_cast<unsigned char>(random >> 16);
        switch ((random >> 24) % 4) {
        case 0:
            at_ = static_cast<unsigned char *>(calloc(1, size_));
            if (at_ && !all_bytes_are(at_, 0, size_)) fail("calloc returned bytes that are not zero");
            break;
        case 1: {
            void *aligned = nullptr;
            if (posix_memalign(&aligned, 64, size_) != 0) fail("posix_memalign failed");
            if (reinterpret_cast<uintptr_t>(aligned) % 64 != 0) fail("posix_memalign returned an unaligned block");
            at_ = static_cast<unsigned char *>(aligned);
            break;
        }
        default: at_ = static_cast<unsigned char *>(malloc(size_));
        }
        if (!at_) fail("no memory");
        if (reinterpret_cast<uintptr_t>(at_) % 16 != 0 && size_ >= 16) fail("a block is not aligned to 16");
        if (malloc_usable_size(at_) < size_) fail("malloc_usable_size is smaller than the block");
        memset(at_, fill_, size_);
    }

    void resize(size_t size) {
        if (handlers_own(size)) return;
        at_ = static_cast<unsigned char *>(realloc(at_, size));
        if (!at_) fail("realloc failed");
        if (size > size_) {
            check();
            memset(at_, fill_, size);
        }
        size_ = size;
    }

    void check() const {
        if (!all_bytes_are(at_, fill_, size_)) fail("a block's contents changed");
    }

    ~Block() {
        if (!at_) return;
        check();
        free(at_);
    }

    Block(Block &&other) noexcept : at_(other.at_), size_(other.size_), fill_(other.fill_) { other.at_ = nullptr; }
    Block &operator=(Block &&other) noexcept {
        std::swap(at_, other.at_);
        std::swap(size_, other.size_);
        std::swap(fill_, other.fill_);
        return *this;
    }

    size_t size() const { return size_; }

private:
    unsigned char *at_;
    size_t size_;
    unsigned char fill_;
};

// Blocks that one thread allocated and another will free.
std::mutex handover_lock;
std::vector<Block> handover;

void allocate_and_check(uint64_t seed, std::atomic<unsigned long> &progress) {
    uint64_t random = seed;
    std::vector<Block> live;
    live.reserve(300);
    while (!stopping) {
        for (int i = 0; i < 200; i++) {
            uint64_t dice = next_random(random);
            if (live.size() < 300) {
                live.emplace_back(dice);
            } else {
                Block &victim = live[dice % live.size()];
                if (dice >> 40 & 1)
                    victim.resize(victim.size() + (dice >> 44) % 5000);
                else
                    victim = Block(dice);
            }
        }
        {
            std::vector<Block> others;
            {
                std::lock_guard<std::mutex> guard(handover_lock);
                others.swap(handover);
                handover.reserve(50);
                for (int i = 0; i < 50; i++) {
                    handover.push_back(std::move(live.back()));
                    live.pop_back();
                }
            }
        }
        progress++;
    }
}

// ---------------------------------------------------------------------------------------------------------------
// Exceptions

[[gnu::noinline]] int descend(int depth, std::atomic<unsigned long> &unwound) {
    struct Guard {
        std::unique_ptr<std::string> text;
        std::atomic<unsigned long> &unwound;
        ~Guard() {
            text.reset();
            std::string again(200, 'b');
            unwound += again.size() == 200;
        }
    } guard{std::make_unique<std::string>(100 + depth, 'a'), unwound};
    if (depth == 0) throw std::runtime_error("from the bottom: " + *guard.text);
    return descend(depth - 1, unwound) + 1;
}

void throw_and_catch(std::atomic<unsigned long> &progress) {
    constexpr int depth = 40;
    while (!stopping) {
        std::atomic<unsigned long> unwound{0};
        bool caught = false;
        try {
            descend(depth, unwound);
        } catch (const std::runtime_error &error) {
            caught = std::string(error.what()).find("from the bottom: aaa") == 0;
        }
        if (!caught || unwound != depth + 1) fail("an exception was not caught, or not every frame was unwound");
        progress++;
    }
}

// ---------------------------------------------------------------------------------------------------------------
// Libraries

void load_and_unload(const char *path, std::atomic<unsigned long> &progress) {
    while (!stopping) {
        void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
        if (!library) fail(dlerror());
        auto work = reinterpret_cast<int (*)(int)>(dlsym(library, "plugin_work"));
        if (!work || work(20) != 50) fail("the plugin returned something else");
        if (dlclose(library) != 0) fail(dlerror());
        progress++;
    }
}

// ---------------------------------------------------------------------------------------------------------------
// Forks

void fork_children(std::atomic<unsigned long> &progress) {
    while (!stopping) {
        pid_t child = fork();
        if (child < 0) fail("fork failed");
        if (child == 0) {
            uint64_t random = 0x9e3779b97f4a7c15u;
            std::vector<Block> live;
            live.reserve(300);
            for (int i = 0; i < 300; i++) live.emplace_back(next_random(random));
            live.clear();
            try {
                std::atomic<unsigned long> unwound{0};
                descend(10, unwound);
            } catch (const std::runtime_error &) {
                _exit(0);
            }
            _exit(9);
        }
        auto started = Clock::now();
        int status = 0;
        for (;;) {
            pid_t ended = waitpid(child, &status, WNOHANG);
            if (ended == child) break;
            if (ended < 0 && errno != EINTR) fail("waitpid failed");
            if (Clock::now() - started > std::chrono::seconds(15)) {
                kill(child, SIGKILL);
                fail("a forked child did not end within 15 seconds", 3);
            }
            usleep(500);
        }
        if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
            char message[80];
            snprintf(message, sizeof message, "a forked child ended with status 0x%x", status);
            fail(message);
        }
        progress++;
    }
}

// ---------------------------------------------------------------------------------------------------------------

struct Worker {
    std::string name;
    std::function<void(std::atomic<unsigned long> &)> body;
    std::atomic<unsigned long> progress{0};
    unsigned long seen = 0;
    Clock::time_point moved = Clock::now();
    std::thread thread;
    Worker(std::string name, std::function<void(std::atomic<unsigned long> &)> body)
        : name(std::move(name)), body(std::move(body)) {}
};

}  // namespace

int main(int argc, char **argv) {
    if (argc < 3) fail("usage: stress PLUGIN SECONDS [--no-signal]", 2);
    const char *plugin = argv[1];
    auto end = Clock::now() + std::chrono::milliseconds(static_cast<long>(atof(argv[2]) * 1000));
    bool with_signal = !(argc > 3 && strcmp(argv[3], "--no-signal") == 0);

    std::vector<std::unique_ptr<Worker>> workers;
    auto add = [&](const char *name, std::function<void(std::atomic<unsigned long> &)> body) {
        workers.push_back(std::make_unique<Worker>(name, std::move(body)));
    };
    for (uint64_t i = 0; i < 4; i++)
        add("malloc", [i](std::atomic<unsigned long> &progress) { allocate_and_check(i + 1, progress); });
    for (int i = 0; i < 2; i++) add("exceptions", throw_and_catch);
    for (int i = 0; i < 2; i++)
        add("dlopen", [plugin](std::atomic<unsigned long> &progress) { load_and_unload(plugin, progress); });
    add("fork", fork_children);
    for (auto &worker : workers) worker->thread = std::thread([&] { worker->body(worker->progress); });
    std::atomic<size_t> ended{0};
    std::thread joiner([&] {
        for (auto &worker : workers) {
            worker->thread.join();
            ended++;
        }
    });

    // The watchdog. It allocates nothing and takes no signal, so that it still speaks when the allocator hangs.
    sigset_t alarm;
    sigemptyset(&alarm);
    sigaddset(&alarm, SIGALRM);
    pthread_sigmask(SIG_BLOCK, &alarm, nullptr);
    if (with_signal) start_timer();
    size_t ended_before = 0;
    while (ended < workers.size()) {
        auto now = Clock::now();
        if (now >= end) stopping = true;
        for (size_t i = 0; i < workers.size(); i++) {
            Worker &worker = *workers[i];
            unsigned long progress = worker.progress;
            if (progress != worker.seen || ended != ended_before) {
                worker.seen = progress;
                worker.moved = now;
            } else if (now - worker.moved > std::chrono::seconds(20)) {
                char message[120];
                snprintf(message, sizeof message, "thread %zu (%s) made no progress for 20 seconds", i,
                         worker.name.c_str());
                fail(message, 3);
            }
        }
        ended_before = ended;
        usleep(50000);
    }
    joiner.join();

    if (with_signal) {
        itimerval off = {};
        setitimer(ITIMER_REAL, &off, nullptr);
    }
    unsigned long least = ~0ul;
    for (auto &worker : workers) least = std::min(least, worker->progress.load());
    if (least == 0) fail("a thread never finished a round");
    if (with_signal && signals_handled == 0) fail("the timer never fired");
    printf("signals %lu", signals_handled.load());
    for (auto &worker : workers) printf(", %s %lu", worker->name.c_str(), worker->progress.load());
    printf("\n");
    return 0;
}
