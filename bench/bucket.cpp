// What the bucket costs: publishing and following a large model through a folder, the requests of
// many followers, and what a late joiner reads.
//
//   wisp_bucket publish PAIR_FOLDER [ROUNDS]     old.safetensors and new.safetensors of
//   wisp_make_pair wisp_bucket followers [URL] [FOLLOWERS] [STEPS]   a memory store when no URL is
//   named wisp_bucket joiner [STEPS] [ELEMENTS]        AdamW on fp32 masters, bf16 published
//   wisp_bucket growth [ELEMENTS] [CHANGES]            a replica of a model, and of one twice as
//   large
//
// Each prints one line of JSON.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/parallel.hpp"
#include "checkpoint/blocks.hpp"
#include "delta/diff_weights.hpp"
#include "doubles/memory_store.hpp"
#include "doubles/metered_store.hpp"
#include "kernel/kernels.hpp"
#include "simulated_training.hpp"
#include "wisp/wisp.hpp"

namespace {

using namespace wisp;
using Json = nlohmann::ordered_json;
namespace fs = std::filesystem;

template <class T>
T value_of(Result<T> result) {
    if (!result) {
        fmt::print(stderr, "wisp_bucket: {}\n", result.error().text);
        std::exit(1);
    }
    if constexpr (!std::is_void_v<T>) return std::move(*result);
}

class Watch {
  public:
    double seconds() const {
        return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
    }

  private:
    std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

double median(std::vector<double> values) {
    std::ranges::sort(values);
    return values.empty() ? 0 : values[values.size() / 2];
}

/// A checkpoint in memory whose bits the bench sets.
class Model : public Weights {
  public:
    explicit Model(std::uint64_t elements)
        : schema_(value_of(Schema::make({{"model.weight", Dtype::kBf16, {elements}}}))),
          bits_(elements) {}
    const Schema& schema() const override { return schema_; }
    std::span<const std::byte> bytes(std::size_t) const override {
        return std::as_bytes(std::span(bits_));
    }
    std::vector<std::uint16_t>& bits() { return bits_; }

  private:
    Schema schema_;
    std::vector<std::uint16_t> bits_;
};

/// A copy of a checkpoint in memory, so that nothing but memory is read while it is published.
class Loaded : public Weights {
  public:
    explicit Loaded(const Checkpoint& from) : schema_(from.schema()) {
        for (std::size_t i = 0; i < schema_.tensors().size(); ++i) {
            tensors_.emplace_back(from.bytes(i).begin(), from.bytes(i).end());
        }
    }
    const Schema& schema() const override { return schema_; }
    std::span<const std::byte> bytes(std::size_t tensor) const override { return tensors_[tensor]; }

  private:
    Schema schema_;
    std::vector<std::vector<std::byte>> tensors_;
};

/// A plain vectorised compare of two states, on all cores: what every figure is held against.
double compare_seconds(const Weights& one, const Weights& other) {
    const Watch watch;
    const BlockGrid grid(one.schema(), kLog2BlockElements);
    std::vector<std::vector<std::uint32_t>> rooms(thread_count(0));
    for (auto& room : rooms) room.resize(kBlockElements);
    value_of(ordered_parallel<bool>(
        grid.count(), thread_count(0),
        [&](std::uint64_t index, unsigned thread) -> Result<bool> {
            const BlockRange range = grid[index];
            active_kernels().scan(range.of(one.bytes(range.tensor)).data(),
                                  range.of(other.bytes(range.tensor)).data(), range.element_count,
                                  range.element_bytes, rooms[thread].data(), {});
            return true;
        },
        [](std::uint64_t, bool) -> Result<void> { return {}; }));
    return watch.seconds();
}

double copy_seconds(const Weights& from, std::vector<std::byte>& into) {
    const Watch watch;
    std::uint64_t at = 0;
    for (std::size_t i = 0; i < from.schema().tensors().size(); ++i) {
        std::ranges::copy(from.bytes(i), into.begin() + static_cast<std::ptrdiff_t>(at));
        at += from.bytes(i).size();
    }
    return watch.seconds();
}

/// One run of one codec in a folder: a trainer, and a replica of each kind.
class CodecRun {
  public:
    CodecRun(const fs::path& folder, Codec codec) : codec_(codec), folder_(folder) {
        InitOptions starting;
        starting.codec = codec;
        value_of(init_run(run_, starting));
        PublishOptions options;
        options.anchor_every = 1'000'000;
        const auto done = [this](const Result<PublishReport>& report) -> Result<void> {
            if (report) baseline_seconds_ = report->baseline_seconds;
            return {};
        };
        publisher_.emplace(value_of(
            AsyncPublisher::start(value_of(Publisher::open(run_, *baseline_, options)), done)));
    }

    void start(const Weights& weights) {
        value_of(publisher_->submit(weights, step_++));
        value_of(publisher_->flush());
        in_folder_.emplace(value_of(Follower::open(run_, *folder_replica_, told(folder_apply_))));
        in_memory_.emplace(value_of(Follower::open(run_, *memory_replica_, told(memory_apply_))));
        value_of(in_folder_->catch_up());
        value_of(in_memory_->catch_up());
    }

    void round(const Weights& to) {
        const Watch submitted;
        blocked_.push_back(value_of(publisher_->submit(to, step_++)).blocked_seconds);
        value_of(publisher_->flush());
        // Followers find the commit before the trainer's own copy has followed it.
        committed_.push_back(submitted.seconds() - baseline_seconds_);
        const Watch arriving;
        value_of(in_memory_->catch_up());
        arrived_.push_back(arriving.seconds());
        value_of(in_folder_->catch_up());
    }

    /// Ratios to a compare and to a copy of the same memory, and when a step is in service at
    /// 1 Gbit/s.
    Json figures(double compare, double copy) const {
        const CommitSummary newest = value_of(read_log(run_, 1, {})).front();
        const double wire = static_cast<double>(newest.delta_bytes) * 8 / 1e9;
        return {{"codec", name_of(codec_)},
                {"delta_bytes", newest.delta_bytes},
                {"changed_share", static_cast<double>(newest.changed_elements) /
                                      static_cast<double>(newest.total_elements)},
                {"blocked_of_copy", median(blocked_) / copy},
                {"committed_of_compare", median(committed_) / compare},
                {"in_memory_of_compare", median(arrived_) / compare},
                {"in_folder_apply_of_compare", median(folder_apply_) / compare},
                {"blocked_seconds", median(blocked_)},
                {"committed_after_seconds", median(committed_)},
                {"in_memory_seconds", median(arrived_)},
                {"in_memory_apply_seconds", median(memory_apply_)},
                {"in_folder_apply_seconds", median(folder_apply_)},
                {"served_after_seconds_at_1_gbit", median(committed_) + wire + median(arrived_)}};
    }

  private:
    static FollowOptions told(std::vector<double>& seconds) {
        FollowOptions options;
        options.on_event = [&](const FollowEvent& event) -> Result<void> {
            if (event.kind == FollowEvent::Kind::kApplied) seconds.push_back(event.apply_seconds);
            return {};
        };
        return options;
    }

    Codec codec_;
    fs::path folder_;
    Location run_ = value_of(open_location((folder_ / "run").string()));
    std::unique_ptr<Replica> baseline_ = value_of(open_memory_replica());
    std::unique_ptr<Replica> folder_replica_ = value_of(open_folder_replica(folder_ / "replica"));
    std::unique_ptr<Replica> memory_replica_ = value_of(open_memory_replica());
    std::optional<AsyncPublisher> publisher_;
    std::optional<Follower> in_folder_;
    std::optional<Follower> in_memory_;
    std::uint64_t step_ = 0;
    double baseline_seconds_ = 0;  // of the newest step
    std::vector<double> blocked_, committed_, arrived_, folder_apply_, memory_apply_;
};

int bench_publish(const fs::path& pair, int rounds) {
    const Loaded old_state(value_of(Checkpoint::open(pair / "old.safetensors")));
    const Loaded new_state(value_of(Checkpoint::open(pair / "new.safetensors")));
    const fs::path folder = pair / "bucket-bench";
    fs::remove_all(folder);
    CodecRun compact(folder / "compact", Codec::kCompact);
    CodecRun swift(folder / "swift", Codec::kSwift);
    compact.start(old_state);
    swift.start(old_state);
    std::vector<std::byte> copied(old_state.schema().total_bytes());
    std::vector<double> compare, copy;
    for (int round = 0; round < rounds; ++round) {
        const Weights& to = round % 2 == 0 ? static_cast<const Weights&>(new_state) : old_state;
        copy.push_back(copy_seconds(to, copied));
        compare.push_back(compare_seconds(old_state, new_state));
        compact.round(to);
        swift.round(to);
    }
    const Json json = {{"bench", "publish"},
                       {"model_bytes", old_state.schema().total_bytes()},
                       {"rounds", rounds},
                       {"threads", thread_count(0)},
                       {"kernels", active_kernels().name},
                       {"compare_seconds", median(compare)},
                       {"copy_seconds", median(copy)},
                       {"runs",
                        {compact.figures(median(compare), median(copy)),
                         swift.figures(median(compare), median(copy))}}};
    fmt::print("{}\n", json.dump());
    fs::remove_all(folder);
    return 0;
}

int bench_followers(const std::string& url, std::size_t count, std::uint64_t steps) {
    Model model(200'000);
    const auto move = [&](std::uint64_t step) {
        for (std::size_t i = step % 200; i < model.bits().size(); i += 200) model.bits()[i] ^= 1;
    };
    const auto shared = std::make_shared<MemoryStore>(system_clock());
    const auto where = [&] {
        Location location =
            url.empty() ? Location{shared, "run", "memory:run"} : value_of(open_location(url));
        const auto meter = std::make_shared<MeteredStore>(location.store);
        location.store = meter;
        return std::pair(location, meter);
    };
    const auto [trainer, trainer_meter] = where();
    value_of(init_run(trainer, {}));
    auto baseline = value_of(open_memory_replica());
    PublishOptions publish_options;
    publish_options.anchor_every = 1'000'000;
    Publisher publisher = value_of(Publisher::open(trainer, *baseline, publish_options));
    value_of(publisher.publish(model, 0));
    struct One {
        std::shared_ptr<MeteredStore> meter;
        std::unique_ptr<Replica> replica;
        std::optional<Follower> follower;
    };
    std::vector<One> followers(count);
    FollowOptions options;
    options.threads = 1;
    for (One& one : followers) {
        const auto [location, meter] = where();
        one.meter = meter;
        one.replica = value_of(open_memory_replica());
        one.follower.emplace(value_of(Follower::open(location, *one.replica, options)));
        value_of(one.follower->catch_up());
    }
    std::vector<StoreCounts> before;
    for (const One& one : followers) before.push_back(one.meter->counts());
    const StoreCounts trainer_before = trainer_meter->counts();
    std::uint64_t delta_bytes = 0;
    for (std::uint64_t step = 1; step <= steps; ++step) {
        move(step);
        delta_bytes += value_of(publisher.publish(model, step)).delta_bytes;
        // All at once, as a fleet does that is told of the step.
        std::vector<std::jthread> threads;
        for (One& one : followers) {
            threads.emplace_back([&one] { value_of(one.follower->take_next()); });
        }
    }
    const StateDigest wanted = value_of(digest_of(model));
    std::uint64_t reads = 0, misses = 0, lists = 0, others = 0, bytes = 0;
    for (std::size_t i = 0; i < followers.size(); ++i) {
        if (value_of(digest_of(*followers[i].replica->weights())) != wanted) {
            fmt::print(stderr, "wisp_bucket: follower {} is not at the trainer's state\n", i);
            return 1;
        }
        const StoreCounts after = followers[i].meter->counts();
        const auto grown = [&](StoreOperation operation, auto member) {
            return after.of(operation).*member - before[i].of(operation).*member;
        };
        misses += grown(StoreOperation::kRead, &OperationCounts::misses);
        reads += grown(StoreOperation::kRead, &OperationCounts::requests);
        lists += grown(StoreOperation::kList, &OperationCounts::requests);
        bytes += grown(StoreOperation::kRead, &OperationCounts::bytes);
        others += after.requests() - before[i].requests();
    }
    others -= reads + lists;
    const double per = static_cast<double>(count * steps);
    const Json json = {
        {"bench", "followers"},
        {"store", url.empty() ? "memory" : trainer.store->label()},
        {"followers", count},
        {"steps", steps},
        {"requests_with_an_object_per_follower_and_step",
         static_cast<double>(reads - misses) / per},
        {"polls_that_found_nothing_per_follower_and_step", static_cast<double>(misses) / per},
        {"lists", lists},
        {"other_requests", others},
        {"bytes_per_follower_and_step", static_cast<double>(bytes) / per},
        {"delta_bytes_per_step", static_cast<double>(delta_bytes) / static_cast<double>(steps)},
        {"publisher_requests_per_step",
         static_cast<double>(trainer_meter->counts().requests() - trainer_before.requests()) /
             static_cast<double>(steps)}};
    fmt::print("{}\n", json.dump());
    return 0;
}

int bench_joiner(std::uint64_t steps, std::uint64_t elements) {
    Model model(elements);
    std::vector<float> masters(elements);
    const std::span bits(model.bits());
    simulation::draw_masters({}, 0.03F, masters);
    simulation::round_masters(masters, bits);
    const Model first = model;
    const auto store = std::make_shared<MemoryStore>(system_clock());
    const Location run{store, "run", "memory:run"};
    value_of(init_run(run, {}));
    auto baseline = value_of(open_memory_replica());
    PublishOptions options;
    options.threads = 1;
    Publisher publisher = value_of(Publisher::open(run, *baseline, options));
    value_of(publisher.publish(model, 0));
    std::uint64_t all_deltas = 0;
    std::uint64_t anchors = 1;
    std::uint64_t anchor_bytes = 0;
    for (std::uint64_t step = 1; step <= steps; ++step) {
        simulation::step_masters({}, {}, step, masters);
        simulation::round_masters(masters, bits);
        const PublishReport report = value_of(publisher.publish(model, step));
        all_deltas += report.delta_bytes;
        if (report.anchored) ++anchors;
        if (report.anchored) anchor_bytes = report.anchor_bytes;
        // As a job beside the trainer does it.
        if (step % 8 == 0) value_of(compact_run(run, {}));
    }
    const fs::path whole = fs::temp_directory_path() / fmt::format("wisp-joiner-{}", ::getpid());
    const DiffReport distance = value_of(diff_weights(first, model, whole, {}));
    fs::remove(whole);
    const auto meter = std::make_shared<MeteredStore>(store);
    auto replica = value_of(open_memory_replica());
    Follower follower = value_of(Follower::open({meter, "run", "memory:run"}, *replica, {}));
    value_of(follower.catch_up());
    if (value_of(digest_of(*replica->weights())) != value_of(digest_of(model))) {
        fmt::print(stderr, "wisp_bucket: the late joiner is not at the trainer's state\n");
        return 1;
    }
    const StoreCounts counts = meter->counts();
    const std::uint64_t model_bytes = model.schema().total_bytes();
    const double limit = static_cast<double>(model_bytes + distance.file_bytes);
    const Json json = {
        {"bench", "joiner"},
        {"steps", steps},
        {"model_bytes", model_bytes},
        {"sum_of_deltas_bytes", all_deltas},
        {"delta_of_the_distance_bytes", distance.file_bytes},
        {"anchors", anchors},
        {"newest_anchor_bytes", anchor_bytes},
        {"joiner_bytes", counts.bytes_in()},
        {"ratio_to_anchor_plus_distance", static_cast<double>(counts.bytes_in()) / limit},
        {"joiner_requests", counts.requests()},
        {"joiner_objects",
         counts.of(StoreOperation::kRead).requests - counts.of(StoreOperation::kRead).misses}};
    fmt::print("{}\n", json.dump());
    return 0;
}

/// A model of which the same number of elements changes in every step, whatever its size.
class SteadyRun {
  public:
    SteadyRun(std::uint64_t elements, std::uint64_t changes)
        : stride_(elements / changes), model_(elements) {
        simulation::draw_masters({}, 0.03F, masters_of(elements));
        simulation::round_masters(masters_, std::span(model_.bits()));
        masters_ = {};
        value_of(init_run(run_, {}));
        publisher_.emplace(value_of(Publisher::open(run_, *baseline_, {})));
        value_of(publisher_->publish(model_, step_++));
        follower_.emplace(value_of(Follower::open(run_, *replica_, {})));
        value_of(follower_->catch_up());
    }
    void round() {
        for (std::uint64_t i = step_ % stride_; i < model_.bits().size(); i += stride_) {
            model_.bits()[i] ^= 1;
        }
        value_of(publisher_->publish(model_, step_++));
        const Watch watch;
        value_of(follower_->catch_up());
        arrived_.push_back(watch.seconds());
    }
    double seconds() const { return median(arrived_); }
    std::uint64_t bytes() const { return model_.schema().total_bytes(); }

  private:
    std::span<float> masters_of(std::uint64_t elements) {
        masters_.resize(elements);
        return masters_;
    }
    std::uint64_t stride_;
    Model model_;
    std::vector<float> masters_;
    Location run_{std::make_shared<MemoryStore>(system_clock()), "run", "memory:run"};
    std::unique_ptr<Replica> baseline_ = value_of(open_memory_replica());
    std::unique_ptr<Replica> replica_ = value_of(open_memory_replica());
    std::optional<Publisher> publisher_;
    std::optional<Follower> follower_;
    std::uint64_t step_ = 0;
    std::vector<double> arrived_;
};

int bench_growth(std::uint64_t elements, std::uint64_t changes, int rounds) {
    SteadyRun once(elements, changes);
    SteadyRun twice(2 * elements, changes);
    for (int round = 0; round < rounds; ++round) {
        once.round();
        twice.round();
    }
    const Json json = {{"bench", "growth"},
                       {"changes", changes},
                       {"model_bytes", {once.bytes(), twice.bytes()}},
                       {"in_memory_seconds", {once.seconds(), twice.seconds()}},
                       {"twice_the_model_takes", twice.seconds() / once.seconds()}};
    fmt::print("{}\n", json.dump());
    return 0;
}

}  // namespace

int main(int argc, char** argv) {
    const std::vector<std::string> words(argv + 1, argv + argc);
    const auto number = [&](std::size_t at, std::uint64_t otherwise) {
        return words.size() > at ? std::stoull(words[at]) : otherwise;
    };
    if (words.size() >= 2 && words[0] == "publish") {
        return bench_publish(words[1], static_cast<int>(number(2, 7)));
    }
    if (!words.empty() && words[0] == "followers") {
        return bench_followers(words.size() > 1 ? words[1] : "", number(2, 16), number(3, 20));
    }
    if (!words.empty() && words[0] == "joiner")
        return bench_joiner(number(1, 1000), number(2, 1 << 20));
    if (!words.empty() && words[0] == "growth") {
        return bench_growth(number(1, 600'000'000), number(2, 3'300'000),
                            static_cast<int>(number(3, 9)));
    }
    fmt::print(stderr,
               "usage: wisp_bucket publish FOLDER | followers [URL] | joiner [STEPS] | growth\n");
    return 2;
}
