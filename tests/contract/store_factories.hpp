// Every store that is held to the contract, made fresh for each test.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "wisp/store.hpp"

namespace wisp::testing {

/// A place in a store that no other test uses, and what cleans it up.
struct StoreUnderTest {
    Location location;  // location.store is null when this store cannot be had here
    std::string why_not;
    std::shared_ptr<void> keeper;
};

struct StoreFactory {
    std::string name;
    std::function<StoreUnderTest()> make;
};

std::vector<StoreFactory> store_factories();

}  // namespace wisp::testing
