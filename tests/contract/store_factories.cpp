#include "contract/store_factories.hpp"

#include <fmt/format.h>

#include <cstdlib>

#include "base/random.hpp"
#include "store/folder_store.hpp"
#include "store/memory_store.hpp"
#include "temp_checkpoints.hpp"

namespace wisp::testing {
namespace {

StoreUnderTest holding(std::shared_ptr<Store> store) {
    return {{std::move(store), "", "test"}, "", nullptr};
}

StoreUnderTest folder_store() {
    const auto folder = std::make_shared<TempFolder>();
    return {{std::make_shared<FolderStore>(folder->path()), "", "test"}, "", folder};
}

StoreUnderTest opened_folder() {
    const auto folder = std::make_shared<TempFolder>();
    return {value_of(open_location((*folder / "run").string())), "", folder};
}

/// Removes what a test left in a bucket that outlives it.
struct PrefixKeeper {
    Location location;
    ~PrefixKeeper() {
        for (;;) {
            const auto listed = location.store->list(location.prefix + "/", "", 1000);
            if (!listed || listed->empty()) return;
            for (const ListedObject& object : *listed) {
                if (!location.store->remove(object.key)) return;
            }
        }
    }
};

StoreUnderTest test_bucket() {
    const char* url = std::getenv("WISP_TEST_BUCKET");
    if (url == nullptr || *url == '\0') {
        return {{}, "WISP_TEST_BUCKET is not set: no S3 bucket to hold to the contract", nullptr};
    }
    Location location = value_of(open_location(url));
    location.prefix = location.key(fmt::format("contract-{:016x}", fresh_seed()));
    return {location, "", std::make_shared<PrefixKeeper>(location)};
}

}  // namespace

std::vector<StoreFactory> store_factories() {
    return {{"memory", [] { return holding(std::make_shared<MemoryStore>()); }},
            {"folder", folder_store},
            {"opened_folder", opened_folder},
            {"bucket", test_bucket}};
}

}  // namespace wisp::testing
