// What the bucket costs: publishing and following a large model through a folder, the requests of
// many followers, and what a late joiner reads.
//
//   wisp_bucket publish PAIR_FOLDER [ROUNDS]     old.safetensors and new.safetensors of
//   wisp_make_pair wisp_bucket followers [URL] [FOLLOWERS] [STEPS]   a memory store when no URL is
//   named wisp_bucket joiner [STEPS] [ELEMENTS]        AdamW on fp32 masters, bf16 published
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

#include "delta/delta_writer.hpp"
#include "doubles/memory_store.hpp"
#include "doubles/metered_store.hpp"
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

int bench_publish(const fs::path& pair, int rounds) {
    const Loaded old_state(value_of(Checkpoint::open(pair / "old.safetensors")));
    const Loaded new_state(value_of(Checkpoint::open(pair / "new.safetensors")));
    const fs::path folder = pair / "bucket-bench";
    fs::remove_all(folder);
    const Location run = value_of(open_location((folder / "run").string()));
    value_of(init_run(run, {}));
    PublishOptions options;
    options.anchor_every = 1'000'000;
    MemoryReplicaOptions memory;
    memory.scratch = folder / "scratch";
    auto baseline = value_of(open_memory_replica(memory));
    std::vector<double> diff, upload, commit, advance, total, overhead, plain;
    std::vector<double> fetch, verify, apply, memory_apply;
    std::uint64_t delta_bytes = 0;
    std::uint64_t changed = 0;
    std::uint64_t step = 1;
    auto folder_replica = value_of(open_folder_replica(folder / "replica"));
    auto memory_replica = value_of(open_memory_replica());
    FollowOptions follow;
    follow.on_event = [&](const FollowEvent& event) -> Result<void> {
        if (event.kind != FollowEvent::Kind::kApplied) return {};
        fetch.push_back(event.fetch_seconds);
        verify.push_back(event.verify_seconds);
        apply.push_back(event.apply_seconds);
        return {};
    };
    FollowOptions in_memory;
    in_memory.on_event = [&](const FollowEvent& event) -> Result<void> {
        if (event.kind == FollowEvent::Kind::kApplied) memory_apply.push_back(event.apply_seconds);
        return {};
    };
    {
        Publisher publisher = value_of(Publisher::open(run, *baseline, options));
        value_of(publisher.publish(old_state, 0));
        Follower follower = value_of(Follower::open(run, *folder_replica, follow));
        Follower memory_follower = value_of(Follower::open(run, *memory_replica, in_memory));
        value_of(follower.catch_up());
        value_of(memory_follower.catch_up());
        for (int round = 0; round < rounds; ++round) {
            const Weights& from =
                round % 2 == 0 ? static_cast<const Weights&>(old_state) : new_state;
            const Weights& to = round % 2 == 0 ? static_cast<const Weights&>(new_state) : old_state;
            // What the same diff costs without any bucket, in the same round.
            const Watch alone;
            value_of(diff_weights(from, to, folder / "alone.safetensors", {}));
            plain.push_back(alone.seconds());
            const Watch watch;
            const PublishReport report = value_of(publisher.publish(to, step++));
            total.push_back(watch.seconds());
            diff.push_back(report.diff_seconds);
            upload.push_back(report.upload_seconds);
            commit.push_back(report.commit_seconds);
            advance.push_back(report.baseline_seconds);
            overhead.push_back(total.back() / plain.back() - 1);
            delta_bytes = report.delta_bytes;
            changed = report.changed_elements;
            value_of(follower.catch_up());
            value_of(memory_follower.catch_up());
        }
    }
    std::vector<double> blocked, lagged;
    {
        AsyncPublisher publisher =
            value_of(AsyncPublisher::start(value_of(Publisher::open(run, *baseline, options)), {}));
        for (int round = 0; round < rounds; ++round) {
            const Weights& to =
                (round + rounds) % 2 == 0 ? static_cast<const Weights&>(new_state) : old_state;
            const Watch watch;
            blocked.push_back(value_of(publisher.submit(to, step++)).blocked_seconds);
            value_of(publisher.flush());
            lagged.push_back(watch.seconds());
        }
    }
    const Json json = {
        {"bench", "publish"},
        {"model_bytes", old_state.schema().total_bytes()},
        {"changed_share",
         static_cast<double>(changed) / static_cast<double>(old_state.schema().total_elements())},
        {"delta_bytes", delta_bytes},
        {"rounds", rounds},
        {"diff_alone_seconds", median(plain)},
        {"publish",
         {{"total_seconds", median(total)},
          {"diff_seconds", median(diff)},
          {"upload_seconds", median(upload)},
          {"commit_seconds", median(commit)},
          {"baseline_seconds", median(advance)},
          {"overhead_over_diff", median(overhead)}}},
        {"async",
         {{"blocked_seconds", median(blocked)}, {"committed_after_seconds", median(lagged)}}},
        {"replica",
         {{"fetch_seconds", median(fetch)},
          {"verify_seconds", median(verify)},
          {"decode_journal_apply_seconds", median(apply)},
          {"in_memory_decode_apply_seconds", median(memory_apply)}}}};
    fmt::print("{}\n", json.dump());
    folder_replica.reset();
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
    fmt::print(stderr, "usage: wisp_bucket publish FOLDER | followers [URL] | joiner [STEPS]\n");
    return 2;
}
