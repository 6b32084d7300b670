#include "base/transfer_tally.hpp"

#include <algorithm>

namespace wisp {
namespace {

thread_local TransferScope* innermost_transfer = nullptr;

}  // namespace

void TransferTally::expect(std::uint64_t total_bytes) {
    if (!told_) return;
    const std::scoped_lock lock(mutex_);
    moved_ = 0;
    total_bytes_ = total_bytes;
    told_(phase_, 0, total_bytes_);
}

void TransferTally::add(std::int64_t bytes) {
    if (!told_ || bytes == 0) return;
    const std::scoped_lock lock(mutex_);
    moved_ += bytes;
    const auto done = static_cast<std::uint64_t>(std::max<std::int64_t>(moved_, 0));
    // More than expected: what came damaged is fetched again.
    told_(phase_, std::min(done, total_bytes_), total_bytes_);
}

TransferScope::TransferScope(TransferTally* tally) : tally_(tally), before_(innermost_transfer) {
    innermost_transfer = this;
}

TransferScope::TransferScope(TransferScope* handed_on)
    : handed_on_(handed_on), before_(innermost_transfer) {
    innermost_transfer = this;
}

TransferScope::~TransferScope() {
    innermost_transfer = before_;
    if (is_complete_ || tally_ == nullptr) return;
    try {
        tally_->add(-told_);
    } catch (...) {
        // From the listener; it may be the reason why the piece is given up.
    }
}

void TransferScope::count(std::int64_t bytes) {
    if (handed_on_ != nullptr) return handed_on_->count(bytes);
    if (tally_ == nullptr) return;
    told_ += bytes;
    tally_->add(bytes);
}

void TransferScope::complete(std::uint64_t bytes) {
    if (tally_ == nullptr) return;
    tally_->add(static_cast<std::int64_t>(bytes) - told_);
    is_complete_ = true;
}

TransferScope* TransferScope::innermost() {
    return innermost_transfer;
}

void TransferScope::moved(std::int64_t bytes) {
    if (innermost_transfer != nullptr) innermost_transfer->count(bytes);
}

}  // namespace wisp
