#include "doubles/metered_store.hpp"

#include <chrono>
#include <numeric>

namespace wisp {
namespace {

void raise_to(std::atomic<std::uint64_t>& highest, std::uint64_t value) {
    std::uint64_t seen = highest;
    while (seen < value && !highest.compare_exchange_weak(seen, value)) {
    }
}

std::uint64_t total(const StoreCounts& counts, std::uint64_t OperationCounts::* member) {
    std::uint64_t sum = 0;
    for (const OperationCounts& operation : counts.operations) sum += operation.*member;
    return sum;
}

}  // namespace

std::uint64_t StoreCounts::requests() const {
    return total(*this, &OperationCounts::requests);
}
std::uint64_t StoreCounts::errors() const {
    return total(*this, &OperationCounts::errors);
}
std::uint64_t StoreCounts::bytes_in() const {
    return of(StoreOperation::kRead).bytes;
}
std::uint64_t StoreCounts::bytes_out() const {
    return of(StoreOperation::kPut).bytes + of(StoreOperation::kCreate).bytes;
}

StoreCounts MeteredStore::counts() const {
    StoreCounts counts;
    for (std::size_t i = 0; i < kStoreOperations; ++i) {
        const Meter& from = meters_[i];
        counts.operations[i] = {from.requests, from.misses,       from.errors,
                                from.bytes,    from.microseconds, from.slowest};
    }
    return counts;
}

template <class Call>
auto MeteredStore::timed(StoreOperation operation, Call call) {
    const auto start = std::chrono::steady_clock::now();
    auto result = call();
    const auto took = std::chrono::duration_cast<std::chrono::microseconds>(
                          std::chrono::steady_clock::now() - start)
                          .count();
    Meter& meter = this->meter(operation);
    ++meter.requests;
    meter.microseconds += static_cast<std::uint64_t>(took);
    raise_to(meter.slowest, static_cast<std::uint64_t>(took));
    if (!result) ++(result.error().kind == ErrorKind::kNotFound ? meter.misses : meter.errors);
    return result;
}

Result<void> MeteredStore::put(const std::string& key, std::span<const std::byte> bytes) {
    meter(StoreOperation::kPut).bytes += bytes.size();
    return timed(StoreOperation::kPut, [&] { return inner_->put(key, bytes); });
}

Result<Created> MeteredStore::create(const std::string& key, std::span<const std::byte> bytes) {
    meter(StoreOperation::kCreate).bytes += bytes.size();
    return timed(StoreOperation::kCreate, [&] { return inner_->create(key, bytes); });
}

Result<std::size_t> MeteredStore::read(const std::string& key, std::uint64_t offset,
                                       std::span<std::byte> into) {
    auto count = timed(StoreOperation::kRead, [&] { return inner_->read(key, offset, into); });
    if (count) meter(StoreOperation::kRead).bytes += *count;
    return count;
}

Result<ObjectInfo> MeteredStore::head(const std::string& key) {
    return timed(StoreOperation::kHead, [&] { return inner_->head(key); });
}

Result<void> MeteredStore::remove(const std::string& key) {
    return timed(StoreOperation::kRemove, [&] { return inner_->remove(key); });
}

Result<std::vector<ListedObject>> MeteredStore::list(const std::string& prefix,
                                                     const std::string& after, std::size_t limit) {
    return timed(StoreOperation::kList, [&] { return inner_->list(prefix, after, limit); });
}

Result<std::int64_t> MeteredStore::now_ms() {
    return timed(StoreOperation::kNow, [&] { return inner_->now_ms(); });
}

}  // namespace wisp
