#include "wisp/maintenance.hpp"

#include <gtest/gtest.h>

#include "doubles/fault_store.hpp"
#include "doubles/memory_store.hpp"
#include "manual_clock.hpp"
#include "store/folder_store.hpp"
#include "temp_checkpoints.hpp"

namespace wisp::testing {
namespace {

/// Gives no answer to creates of what has such a name, takes no object larger than this, and lets
/// everybody win who creates a larger one than that.
class PeculiarStore : public MemoryStore {
  public:
    std::string mute = "nothing";
    std::size_t refused_above = SIZE_MAX;
    std::size_t careless_above = SIZE_MAX;

    Result<void> put(const std::string& key, std::span<const std::byte> bytes) override {
        if (bytes.size() > refused_above) return fail(ErrorKind::kInvalid, "413 Too Large");
        return MemoryStore::put(key, bytes);
    }
    Result<Created> create(const std::string& key, std::span<const std::byte> bytes) override {
        if (key.find(mute) != std::string::npos) return fail(ErrorKind::kUnavailable, "no answer");
        if (bytes.size() <= careless_above) return MemoryStore::create(key, bytes);
        if (auto put = MemoryStore::put(key, bytes); !put) return std::unexpected(put.error());
        return Created::kNew;
    }
};

DoctorReport examined(std::shared_ptr<Store> store, const std::string& url = "test") {
    DoctorOptions options;
    options.quick = true;
    return value_of(examine({std::move(store), "runs", url}, options));
}

std::string verdict_on(const DoctorReport& report, std::string_view name) {
    for (const Finding& finding : report.findings) {
        if (finding.name == name) return std::string(name_of(finding.verdict));
    }
    return "no such finding";
}

TEST(Doctor, AcceptsAGoodStoreAndLeavesNothing) {
    const auto memory = std::make_shared<MemoryStore>();
    const DoctorReport report = examined(memory);
    for (const Finding& finding : report.findings) {
        EXPECT_TRUE(finding.verdict == Verdict::kPass || finding.verdict == Verdict::kSkipped)
            << finding.name << ": " << finding.detail;
    }
    EXPECT_TRUE(report.healthy);
    EXPECT_TRUE(report.exclusive_create);
    EXPECT_TRUE(value_of(memory->list("", "", 10)).empty());
}

TEST(Doctor, AcceptsAFolderAndLeavesNotEvenFolders) {
    const TempFolder folder;
    const Location location = value_of(open_location(folder.path().string()));
    DoctorOptions options;
    options.quick = true;
    const DoctorReport report = value_of(examine(location, options));
    EXPECT_TRUE(report.healthy);
    EXPECT_TRUE(report.exclusive_create);
    EXPECT_EQ(folder.file_count(), 0U);
}

TEST(Doctor, TriesALargeObjectOnABucket) {
    DoctorOptions options;
    const DoctorReport report =
        value_of(examine({std::make_shared<MemoryStore>(), "", "s3://imagined"}, options));
    EXPECT_EQ(verdict_on(report, "large_object"), "pass");
    EXPECT_TRUE(report.exclusive_create);
}

TEST(Doctor, ConvictsAStoreThatIgnoresTheCondition) {
    FaultPlan plan;
    plan.creation = Creation::kOverwrite;
    const auto memory = std::make_shared<MemoryStore>();
    const DoctorReport report = examined(std::make_shared<FaultStore>(memory, plan, 1));
    EXPECT_EQ(verdict_on(report, "create_twice"), "fail");
    EXPECT_EQ(verdict_on(report, "create_racing"), "skipped") << "it is known already";
    EXPECT_EQ(verdict_on(report, "ranges"), "pass");
    EXPECT_FALSE(report.exclusive_create);
    EXPECT_FALSE(report.healthy);
    EXPECT_TRUE(value_of(memory->list("", "", 10)).empty());
}

TEST(Doctor, ConvictsAStoreThatHoldsOnlyOneRequestAtATime) {
    FaultPlan plan;
    plan.creation = Creation::kRacy;
    plan.race_window = Milliseconds(20);
    const DoctorReport report =
        examined(std::make_shared<FaultStore>(std::make_shared<MemoryStore>(), plan, 1));
    EXPECT_EQ(verdict_on(report, "create_twice"), "pass");
    EXPECT_EQ(verdict_on(report, "create_interleaved"), "fail");
    EXPECT_FALSE(report.exclusive_create);
}

TEST(Doctor, SeesStaleReadsAndLists) {
    FaultPlan plan;
    plan.stale_read = plan.stale_list = 1;
    plan.stale_operations = 1;
    const DoctorReport report =
        examined(std::make_shared<FaultStore>(std::make_shared<MemoryStore>(), plan, 1));
    EXPECT_EQ(verdict_on(report, "overwrite"), "fail");
    EXPECT_EQ(verdict_on(report, "remove"), "fail");
    EXPECT_EQ(verdict_on(report, "listing"), "fail");
}

TEST(Doctor, SeesDamagedReads) {
    FaultPlan plan;
    plan.flipped_bit = 1;
    const DoctorReport report =
        examined(std::make_shared<FaultStore>(std::make_shared<MemoryStore>(), plan, 1));
    EXPECT_EQ(verdict_on(report, "ranges"), "fail");
    EXPECT_EQ(verdict_on(report, "key_characters"), "warn");
}

TEST(Doctor, RemovesWhatAnInterruptedOneLeft) {
    const auto clock = std::make_shared<ManualClock>();
    const auto memory = std::make_shared<MemoryStore>(clock);
    value_of(memory->put("runs/.wisp-doctor-0123/old", {}));
    value_of(memory->put("runs/mine", {}));
    clock->advance(std::chrono::hours(2));
    value_of(memory->put("runs/.wisp-doctor-4567/at-work", {}));
    examined(memory);
    const auto left = value_of(memory->list("", "", 10));
    ASSERT_EQ(left.size(), 2U);
    EXPECT_EQ(left[0].key, "runs/.wisp-doctor-4567/at-work");
    EXPECT_EQ(left[1].key, "runs/mine");
}

TEST(Doctor, WarnsOfAClockThatIsOff) {
    const auto clock = std::make_shared<ManualClock>();
    const DoctorReport report = examined(std::make_shared<MemoryStore>(clock));
    EXPECT_EQ(verdict_on(report, "clock"), "warn");
    EXPECT_TRUE(report.healthy);
    EXPECT_TRUE(report.exclusive_create);
}

TEST(Doctor, ProvesNothingWhenTheStoreDoesNotAnswer) {
    FaultPlan plan;
    plan.fail_before = 1;
    const auto report = examine(
        {std::make_shared<FaultStore>(std::make_shared<MemoryStore>(), plan, 1), "", "test"}, {});
    EXPECT_EQ(outcome_of(report), "unavailable");
}

TEST(Doctor, CallsUndecidedWhatGotNoAnswer) {
    const auto store = std::make_shared<PeculiarStore>();
    store->mute = "create_racing";
    const DoctorReport report = examined(store);
    EXPECT_EQ(verdict_on(report, "create_racing"), "undecided");
    EXPECT_EQ(verdict_on(report, "create_interleaved"), "pass");
    EXPECT_TRUE(report.undecided);
    EXPECT_TRUE(report.healthy) << "nothing was proven against it";
    EXPECT_FALSE(report.convicted);
    EXPECT_FALSE(report.exclusive_create);
}

TEST(Doctor, LetsSmallRacesDecideWhereLargeObjectsGetNoAnswer) {
    const auto store = std::make_shared<PeculiarStore>();
    store->mute = "create_large";
    const DoctorReport report = examined(store, "s3://imagined");
    EXPECT_EQ(verdict_on(report, "create_large"), "skipped");
    EXPECT_FALSE(report.undecided);
    EXPECT_TRUE(report.exclusive_create);
}

TEST(Doctor, ConvictsNobodyOfALargeObjectThatIsRefused) {
    const auto store = std::make_shared<PeculiarStore>();
    store->refused_above = 1'000'000;
    const DoctorReport report = examined(store, "s3://imagined");
    EXPECT_EQ(verdict_on(report, "create_large"), "skipped");
    EXPECT_EQ(verdict_on(report, "create_racing"), "pass")
        << "it was not skipped for the large one";
    EXPECT_TRUE(report.healthy);
    EXPECT_TRUE(report.exclusive_create);
}

TEST(Doctor, RacesWithLargeObjectsEvenWhenItIsToBeQuick) {
    const auto store = std::make_shared<PeculiarStore>();
    store->careless_above = 16'000'000;
    const DoctorReport report = examined(store, "s3://imagined");
    EXPECT_EQ(verdict_on(report, "create_large"), "fail");
    EXPECT_EQ(verdict_on(report, "create_racing"), "skipped") << "it is known already";
    EXPECT_TRUE(report.convicted);
    EXPECT_FALSE(report.exclusive_create);
}

}  // namespace
}  // namespace wisp::testing
