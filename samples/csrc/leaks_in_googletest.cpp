// Fails each test of GoogleTest that does not free what it allocates: a listener after GoogleTest's own sample10.
//
//     g++ -o tests leaks_in_googletest.cpp -lgtest -lpoolscope
//     ./tests --check_for_leaks
//
// Blocks that grew are those that the test's thread allocated in the test and that are still there at its end. A test that
// has failed already is not checked: messages of failures are on the heap.
#include <cstring>

#include <gtest/gtest.h>
#include <poolscope_heapcheck.h>

class LeakChecker : public testing::EmptyTestEventListener {
    void OnTestStart(const testing::TestInfo &) override { scope_ = poolscope_heapcheck_begin(); }

    void OnTestEnd(const testing::TestInfo &info) override {
        poolscope_heapcheck_result left{};
        int result = poolscope_heapcheck_end(scope_, nullptr, &left);
        if (!info.result()->Failed()) {
            EXPECT_EQ(result, 0) << "Leaked " << left.bytes << " bytes in " << left.blocks << " blocks.";
        }
    }

    uint64_t scope_ = 0;
};

TEST(Leaks, AreNotInATestThatFrees) { delete[] new int[100]; }

// Nothing points to the block any more when this returns.
void lose() {
    int *volatile lost = new int[100];
    (void)lost;
}

TEST(Leaks, FailTheTestThatHasThem) { lose(); }

TEST(Leaks, AreNotBlamedOnTheNextTest) { delete new int(1); }

TEST(Leaks, AreLeftOutOfATestThatFailed) {
    lose();
    FAIL() << "its own reason";
}

int main(int count, char **words) {
    testing::InitGoogleTest(&count, words);
    if (count > 1 && std::strcmp(words[1], "--check_for_leaks") == 0)
        // Behind the printer, so that a failure is booked on the right test.
        testing::UnitTest::GetInstance()->listeners().Append(new LeakChecker);
    return RUN_ALL_TESTS();
}
