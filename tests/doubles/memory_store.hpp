// Objects in memory, for tests and for publishers and replicas in one process. Thread-safe.
#pragma once

#include <map>
#include <mutex>

#include "wisp/control.hpp"
#include "wisp/store.hpp"

namespace wisp {

class MemoryStore : public Store {
  public:
    explicit MemoryStore(std::shared_ptr<Clock> clock = system_clock())
        : clock_(std::move(clock)) {}

    std::string label() const override { return "memory"; }
    Result<void> put(const std::string& key, std::span<const std::byte> bytes) override;
    Result<Created> create(const std::string& key, std::span<const std::byte> bytes) override;
    Result<std::size_t> read(const std::string& key, std::uint64_t offset,
                             std::span<std::byte> into) override;
    Result<ObjectInfo> head(const std::string& key) override;
    Result<void> remove(const std::string& key) override;
    Result<std::vector<ListedObject>> list(const std::string& prefix, const std::string& after,
                                           std::size_t limit) override;
    Result<std::int64_t> now_ms() override { return clock_->now_ms(); }

  private:
    struct Object {
        std::vector<std::byte> bytes;
        std::int64_t modified_ms = 0;
        ObjectInfo info() const { return {bytes.size(), modified_ms}; }
    };
    std::shared_ptr<Clock> clock_;
    std::mutex mutex_;
    std::map<std::string, Object> objects_;
};

}  // namespace wisp
