// 64 threads whose thread-local objects allocate and free while the threads end, beside others that throw.
//
// What happens late in a thread's life is what allocators get wrong: C++ destructors of thread_local objects run
// first, then the destructors of pthread keys, several times over while they set new values, and each of them
// may allocate after the allocator has cleaned up behind the thread.
//
// usage: threads_tls [ROUNDS]. Ends with 0 if every object was destroyed, and every byte was as it was left.

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <pthread.h>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace {

constexpr int THREADS = 64;

std::atomic<long> made{0}, destroyed{0}, late{0}, caught{0}, wrong{0};

// Allocates when it is made, when it is used and when it is destroyed.
class Notebook {
public:
    Notebook() : page_(new char[777]) {
        memset(page_.get(), 'n', 777);
        made++;
    }
    void write(int i) {
        lines_.push_back("line " + std::to_string(i) + std::string(static_cast<size_t>(i) % 300, '.'));
        index_[i] = lines_.back().substr(0, 20 + static_cast<size_t>(i) % 30);
    }
    ~Notebook() {
        std::vector<std::string> copy(lines_.rbegin(), lines_.rend());
        lines_.clear();
        for (const auto &line : copy)
            if (line.compare(0, 5, "line ") != 0) wrong++;
        std::unique_ptr<char[]> last(new char[5000]);
        memset(last.get(), 'd', 5000);
        for (int i = 0; i < 777; i++)
            if (page_[i] != 'n') wrong++;
        destroyed++;
    }

private:
    std::unique_ptr<char[]> page_;
    std::vector<std::string> lines_;
    std::map<int, std::string> index_;
};

thread_local Notebook notebook;
thread_local std::vector<std::unique_ptr<Notebook>> shelf;

// A key whose destructor allocates, and sets the key again until the limit of rounds: the last thing that runs.
pthread_key_t key;

struct Late {
    int left;
    char filler[900];
};

void end_of_thread(void *value) {
    auto *old = static_cast<Late *>(value);
    int left = old->left;
    free(old);
    late++;
    auto *scratch = static_cast<char *>(malloc(60000));
    if (!scratch) abort();
    memset(scratch, 1, 60000);
    free(scratch);
    if (left == 0) return;
    auto *next = static_cast<Late *>(calloc(1, sizeof(Late)));
    if (!next) abort();
    next->left = left - 1;
    pthread_setspecific(key, next);
}

[[gnu::noinline]] void descend(int depth) {
    std::string here(static_cast<size_t>(depth) * 7 + 20, 'e');
    if (depth == 0) throw std::runtime_error(here);
    descend(depth - 1);
    if (here.empty()) wrong++;
}

void live(int number, std::vector<std::string> &inherited) {
    auto *value = static_cast<Late *>(calloc(1, sizeof(Late)));
    if (!value) abort();
    value->left = 2;
    pthread_setspecific(key, value);
    for (int i = 0; i < 100; i++) {
        notebook.write(i + number);
        if (i % 10 == 0) shelf.push_back(std::make_unique<Notebook>());
        if (number % 2 == 0) {
            try {
                descend(5 + i % 30);
                wrong++;
            } catch (const std::runtime_error &error) {
                caught += error.what()[0] == 'e';
            }
        }
    }
    // Freed by the main thread, after this one is gone.
    for (int i = 0; i < 50; i++) inherited.emplace_back(static_cast<size_t>(30 + i * number), 'i');
}

}  // namespace

int main(int argc, char **argv) {
    int rounds = argc > 1 ? atoi(argv[1]) : 5;
    pthread_key_create(&key, end_of_thread);
    for (int round = 0; round < rounds; round++) {
        std::vector<std::vector<std::string>> inherited(THREADS);
        std::vector<std::thread> threads;
        for (int i = 0; i < THREADS; i++) threads.emplace_back(live, i, std::ref(inherited[static_cast<size_t>(i)]));
        for (auto &thread : threads) thread.join();
        for (const auto &strings : inherited)
            for (const auto &text : strings)
                if (text.find_first_not_of('i') != std::string::npos) wrong++;
    }
    long threads = static_cast<long>(rounds) * THREADS;
    printf("made %ld, destroyed %ld, late %ld, caught %ld, wrong %ld\n", made.load(), destroyed.load(), late.load(),
           caught.load(), wrong.load());
    bool right = made == destroyed && made == threads * 11 && late == threads * 3 && caught == threads / 2 * 100 &&
                 wrong == 0;
    return right ? 0 : 1;
}
