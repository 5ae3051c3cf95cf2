// Fails each test case of Catch2 (version 2) that does not free what it allocates.
//
//     g++ -o tests leaks_in_catch2.cpp -lpoolscope
//
// Blocks that grew are those that the thread allocated in the test case and that are still there at its end. A listener of
// Catch2 can't fail a test case, and the library keeps memory of its own around one: `LeakCheck` is the first line of the
// body instead.
#define CATCH_CONFIG_MAIN
#define CATCH_CONFIG_FAST_COMPILE
#include <catch2/catch.hpp>
#include <poolscope_heapcheck.h>

class LeakCheck {
  public:
    LeakCheck() : scope_(poolscope_heapcheck_begin()) {}
    LeakCheck(const LeakCheck &) = delete;

    ~LeakCheck() noexcept(false) {
        poolscope_heapcheck_result left{};
        int result = poolscope_heapcheck_end(scope_, nullptr, &left);
        // A test case that ends by an exception has its own reason.
        if (std::uncaught_exceptions() == 0 && result != 0)
            FAIL("Leaked " << left.bytes << " bytes in " << left.blocks << " blocks.");
    }

  private:
    uint64_t scope_;
};

TEST_CASE("a test that frees") {
    LeakCheck check;
    delete[] new int[100];
}

// Nothing points to the block any more when this returns.
void lose() {
    int *volatile lost = new int[100];
    (void)lost;
}

TEST_CASE("a test that leaks") {
    LeakCheck check;
    lose();
}

TEST_CASE("the next test") {
    LeakCheck check;
    delete new int(1);
}
