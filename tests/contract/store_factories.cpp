#include "contract/store_factories.hpp"

#include <fmt/format.h>

#include <cstdlib>

#include "base/random.hpp"
#include "doubles/fault_store.hpp"
#include "doubles/memory_store.hpp"
#include "doubles/metered_store.hpp"
#include "manual_clock.hpp"
#include "store/folder_store.hpp"
#include "store/retry_store.hpp"
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

/// Losing replies and throttling must not show through retries.
StoreUnderTest retry_of_faults() {
    FaultPlan plan;
    plan.fail_before = plan.reply_lost = plan.throttle = 0.1;
    auto faulty = std::make_shared<FaultStore>(std::make_shared<MemoryStore>(), plan, 3);
    RetryPlan patient;
    patient.tries = 100;
    patient.total = Milliseconds(1'000'000'000);
    auto clock = std::make_shared<ManualClock>();
    return holding(std::make_shared<RetryStore>(std::move(faulty), patient, std::move(clock), 5));
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
    const auto memory = [] { return std::make_shared<MemoryStore>(); };
    return {{"memory", [=] { return holding(memory()); }},
            {"folder", folder_store},
            {"opened_folder", opened_folder},
            {"retry", [=] { return holding(std::make_shared<RetryStore>(memory())); }},
            {"retry_of_faults", retry_of_faults},
            {"metered", [=] { return holding(std::make_shared<MeteredStore>(memory())); }},
            {"no_faults",
             [=] { return holding(std::make_shared<FaultStore>(memory(), FaultPlan{}, 1)); }},
            {"bucket", test_bucket}};
}

}  // namespace wisp::testing
