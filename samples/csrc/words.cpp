// Counts the words of its standard input in containers on the pool. The index lives in the pool itself; what one line
// needs lies in an arena of the line's own, which takes its memory from the pool as well.
//
//     c++ -std=c++17 words.cpp $(pkg-config --cflags --libs poolscope)
//     ./a.out < words.cpp
#include <poolscope_memory_resource.hpp>

#include <algorithm>
#include <iostream>
#include <memory_resource>
#include <sstream>
#include <string>
#include <unordered_map>
#include <vector>

int main() {
    auto *pool = poolscope::pool_resource();
    std::pmr::unordered_map<std::pmr::string, unsigned> counts(pool);

    for (std::string line; std::getline(std::cin, line);) {
        std::pmr::monotonic_buffer_resource arena(pool);
        std::pmr::vector<std::pmr::string> words(&arena);
        std::istringstream text(line);
        for (std::string word; text >> word;) words.emplace_back(word);
        for (const auto &word : words) counts[word]++;
    }

    using Row = std::pair<unsigned, std::pmr::string>;
    std::pmr::vector<Row> rows(pool);
    for (const auto &[word, count] : counts) rows.emplace_back(count, word);
    std::sort(rows.begin(), rows.end(), [](const Row &a, const Row &b) {
        return a.first != b.first ? a.first > b.first : a.second < b.second;
    });
    rows.resize(std::min<std::size_t>(rows.size(), 10));
    for (const auto &[count, word] : rows) std::cout << count << '\t' << word << '\n';
}
