// Counts what a store is asked: requests, bytes, failures and time per kind of call. Thread-safe.
//
// Wrapped around a retrying store it counts what callers see, inside one what servers see.
#pragma once

#include <array>
#include <atomic>
#include <memory>

#include "doubles/store_operation.hpp"
#include "wisp/store.hpp"

namespace wisp {

struct OperationCounts {
    std::uint64_t requests = 0;
    std::uint64_t misses = 0;  // kNotFound: an answer, not a failure
    std::uint64_t errors = 0;  // every other failure
    std::uint64_t bytes = 0;   // sent by put and create, received by read
    std::uint64_t microseconds = 0;
    std::uint64_t slowest_microseconds = 0;
};

struct StoreCounts {
    std::array<OperationCounts, kStoreOperations> operations;
    const OperationCounts& of(StoreOperation operation) const {
        return operations[static_cast<std::size_t>(operation)];
    }
    std::uint64_t requests() const;
    std::uint64_t errors() const;
    std::uint64_t bytes_out() const;
    std::uint64_t bytes_in() const;
};

class MeteredStore : public Store {
  public:
    explicit MeteredStore(std::shared_ptr<Store> inner) : inner_(std::move(inner)) {}

    /// Each number is exact; those of calls under way may be missing from some and not others.
    StoreCounts counts() const;

    std::string label() const override { return inner_->label(); }
    std::string bucket() const override { return inner_->bucket(); }
    Result<void> put(const std::string& key, std::span<const std::byte> bytes) override;
    Result<Created> create(const std::string& key, std::span<const std::byte> bytes) override;
    Result<std::size_t> read(const std::string& key, std::uint64_t offset,
                             std::span<std::byte> into) override;
    Result<ObjectInfo> head(const std::string& key) override;
    Result<void> remove(const std::string& key) override;
    Result<std::vector<ListedObject>> list(const std::string& prefix, const std::string& after,
                                           std::size_t limit) override;
    Result<std::int64_t> now_ms() override;
    bool creates_exclusively() const override { return inner_->creates_exclusively(); }
    StoreTerms terms() const override { return inner_->terms(); }

  private:
    struct Meter {
        std::atomic<std::uint64_t> requests, misses, errors, bytes, microseconds, slowest;
    };
    Meter& meter(StoreOperation operation) { return meters_[static_cast<std::size_t>(operation)]; }
    template <class Call>
    auto timed(StoreOperation operation, Call call);

    std::shared_ptr<Store> inner_;
    std::array<Meter, kStoreOperations> meters_ = {};
};

}  // namespace wisp
