// A store that is asked before the answers are needed: requests that do not depend on each other
// are under way at once, whatever order the code that reads them has.
//
// Each expected answer serves one call, the next call asks again: a caller that looks twice because
// a reply seemed wrong does look twice. Only so many answers wait to be called for; beyond that the
// store is asked as calls come. Everything else goes to the store itself. Thread-safe.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "wisp/control.hpp"
#include "wisp/store.hpp"

namespace wisp {

class ReadAhead : public Store {
  public:
    explicit ReadAhead(std::shared_ptr<Store> store);
    /// Gives up what was not begun, and waits for the rest.
    ~ReadAhead() override;

    /// read_whole() of this object is going to be asked for.
    void expect(const std::string& key);
    void expect_list(const std::string& prefix, const std::string& after, std::size_t limit);
    void expect_now();

    std::string label() const override { return store_->label(); }
    std::string bucket() const override { return store_->bucket(); }
    Result<void> put(const std::string& key, std::span<const std::byte> bytes) override;
    Result<Created> create(const std::string& key, std::span<const std::byte> bytes) override;
    Result<std::size_t> read(const std::string& key, std::uint64_t offset,
                             std::span<std::byte> into) override;
    Result<ObjectInfo> head(const std::string& key) override { return store_->head(key); }
    Result<void> remove(const std::string& key) override { return store_->remove(key); }
    Result<std::vector<ListedObject>> list(const std::string& prefix, const std::string& after,
                                           std::size_t limit) override;
    Result<std::int64_t> now_ms() override;
    bool creates_exclusively() const override { return store_->creates_exclusively(); }
    StoreTerms terms() const override { return store_->terms(); }

  private:
    using Bytes = Result<std::vector<std::byte>>;
    using Listing = Result<std::vector<ListedObject>>;
    using ListKey = std::tuple<std::string, std::string, std::size_t>;

    struct Turn {
        std::atomic<bool> begun = false;
        std::function<void()> run;
    };
    template <class T>
    struct Expected {
        std::future<T> answer;
        std::shared_ptr<Turn> turn;
    };

    template <class T>
    Expected<T> ask(std::function<T()> request);
    template <class T>
    T answer_of(Expected<T> expected);
    void work();

    std::shared_ptr<Store> store_;
    const StopScope* scope_;
    std::mutex mutex_;
    std::condition_variable news_;
    bool ended_ = false;
    std::size_t held_ = 0;  // answers begun by a thread and not called for
    std::deque<std::shared_ptr<Turn>> waiting_;
    std::multimap<std::string, Expected<Bytes>> objects_;
    std::multimap<ListKey, Expected<Listing>> listings_;
    std::deque<Expected<Result<std::int64_t>>> times_;
    std::vector<std::jthread> threads_;  // last: they use what is above
};

}  // namespace wisp
