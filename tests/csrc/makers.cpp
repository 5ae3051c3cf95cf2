// Functions that differ in nothing but what stands in angle brackets. Each holds as much as the tests expect of it.

#include <cstdio>
#include <vector>

template <typename T, int N> struct Pool {
    __attribute__((noinline)) T *make() {
        T *made = new T[N];
        made[0] = T();
        return made;
    }
};

template <typename T> __attribute__((noinline)) std::vector<T> fill(std::size_t count) {
    return std::vector<T>(count, T());
}

int main() {
    static std::vector<int *> ints;
    static std::vector<double *> doubles;
    static std::vector<std::vector<short>> shorts;
    ints.reserve(100), doubles.reserve(100), shorts.reserve(100);
    for (int i = 0; i < 100; i++) {
        ints.push_back(Pool<int, 25>().make());
        doubles.push_back(Pool<double, 250>().make());
        shorts.push_back(fill<short>(500));
    }
    std::puts("ready");
    std::fflush(stdout);
    return std::getchar() == 'x';
}
