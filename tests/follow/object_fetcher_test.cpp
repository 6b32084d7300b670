// Objects fetched in ranges, whatever size a commit claims for them.
#include <gtest/gtest.h>

#include "base/sha256.hpp"
#include "follow/object_fetcher.hpp"
#include "interrupted_store.hpp"
#include "temp_checkpoints.hpp"

namespace wisp::testing {
namespace {

class FetchedObjects : public ::testing::Test {
  protected:
    StoredPart put(const std::string& name, const Bytes& bytes) {
        value_of(store_->put(run_.key(name), bytes));
        return {name, bytes.size(), to_hex(sha256(bytes))};
    }
    static Bytes noise(std::size_t count) {
        Bytes bytes(count);
        for (std::size_t i = 0; i < count; ++i) bytes[i] = static_cast<std::byte>(i * i >> 7);
        return bytes;
    }
    static StoredFile file_of(std::vector<StoredPart> parts) {
        StoredFile file;
        file.parts = std::move(parts);
        return file;
    }

    TempFolder folder_;
    std::shared_ptr<InterruptedStore> store_ = std::make_shared<InterruptedStore>();
    Location run_{store_, "run", "memory:run"};
    ObjectFetcher fetcher_{run_, folder_ / "fetched", 2};
};

TEST_F(FetchedObjects, ComeWholeInSeveralChunksAndParts) {
    const Bytes small = noise(1000);
    const Bytes large = noise((std::size_t{16} << 20) + 5);
    const auto path = value_of(fetcher_.fetch(
        file_of({put("a", small), put("empty", {}), put("b", large), put("c", small)})));
    Bytes whole = small;
    whole.insert(whole.end(), large.begin(), large.end());
    whole.insert(whole.end(), small.begin(), small.end());
    EXPECT_TRUE(read_bytes(path) == whole);
    EXPECT_EQ(fetcher_.take_counts().objects, 3U);
}

TEST_F(FetchedObjects, AreHeldAgainstTheSizeThatIsClaimedBeforeRoomIsMade) {
    StoredPart part = put("a", noise(1000));
    for (const std::uint64_t claimed :
         {std::uint64_t{1} << 60, UINT64_MAX, std::uint64_t{1} << 25}) {
        part.bytes = claimed;
        const auto fetched = fetcher_.fetch(file_of({part}));
        EXPECT_EQ(outcome_of(fetched), "corrupt") << claimed;
        EXPECT_NE(text_of(fetched).find("has 1000 bytes, but its commit says"), std::string::npos)
            << text_of(fetched);
    }
    part.bytes = 1001;
    EXPECT_EQ(outcome_of(fetcher_.fetch(file_of({part}))), "corrupt");
    part.key = "gone";
    part.bytes = std::uint64_t{1} << 60;
    EXPECT_EQ(outcome_of(fetcher_.fetch(file_of({part}))), "gap");
}

TEST_F(FetchedObjects, DamagedOnTheWayAreFetchedAnewByWhomItMatters) {
    const Bytes bytes = noise(1000);
    const StoredFile file = file_of({put("a", bytes)});
    store_->interrupted_at = "a";
    store_->replies = {std::string(1000, 'x')};
    EXPECT_EQ(outcome_of(fetcher_.fetch(file)), "corrupt");
    store_->replies = {std::string(1000, 'x')};
    EXPECT_TRUE(read_bytes(value_of(fetcher_.fetch_surely(file))) == bytes);
    EXPECT_TRUE(store_->replies.empty());
}

/// Says that an object is as large as anybody claims.
class BoastfulStore : public MemoryStore {
  public:
    Result<ObjectInfo> head(const std::string&) override {
        return ObjectInfo{std::uint64_t{1} << 60, 0};
    }
};

TEST(FetchedObject, ThatDoesNotFitOntoTheDiskIsNotBegun) {
    const TempFolder folder;
    ObjectFetcher fetcher({std::make_shared<BoastfulStore>(), "run", "memory:run"},
                          folder / "fetched", 2);
    StoredFile file;
    file.parts.push_back({"a", std::uint64_t{1} << 60, std::string(64, 'a')});
    const auto fetched = fetcher.fetch(file);
    EXPECT_EQ(outcome_of(fetched), "no_space") << text_of(fetched);
}

}  // namespace
}  // namespace wisp::testing
