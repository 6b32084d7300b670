#include "relay.hpp"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <memory>

#include "arrays.hpp"
#include "bindings.hpp"
#include "calls.hpp"
#include "replica_view.hpp"
#include "runs.hpp"
#include "wisp/history.hpp"

namespace wisp::python {
namespace {

using namespace nb::literals;

/// What the library calls; the last object goes with the interpreter lock held.
class RelayHooks {
  public:
    explicit RelayHooks(const RelayCalls& calls) : calls_(calls) {}
    ~RelayHooks() {
        const Locked locked;
        buffer_.reset();
        calls_ = {};
    }
    RelayHooks(const RelayHooks&) = delete;
    RelayHooks& operator=(const RelayHooks&) = delete;

    Result<std::span<std::byte>> room(std::span<const TouchedTensor> tensors) {
        return call_python<std::span<std::byte>>(
            "the relay", [&]() -> Result<std::span<std::byte>> {
                nb::list wanted;
                for (const TouchedTensor& tensor : tensors) {
                    wanted.append(nb::make_tuple(tensor.tensor, tensor.words));
                }
                buffer_ = std::make_unique<HeldBuffer>();
                const nb::object given = calls_.room(wanted);
                if (!buffer_->hold(given, true)) {
                    return fail(ErrorKind::kInvalid, "the room of a relay must be writable");
                }
                return buffer_->bytes();
            });
    }
    Result<void> ask(const StateDigest& at) {
        return told([&] { calls_.ask(to_text(at)); });
    }
    std::string asked() {
        auto names = call_python<std::string>("the relay", [&]() -> Result<std::string> {
            return nb::cast<std::string>(calls_.asked());
        });
        return names ? *names : "the engines";
    }
    Result<void> adopt(const std::filesystem::path& folder, const Schema& schema,
                       const ReplicaRecord& at) {
        return told([&] {
            calls_.adopt(folder.string(), schema_list(schema), at.step, at.seq, to_text(at.state));
        });
    }
    Result<void> move(const ReplicaMove& move) {
        return told([&] {
            buffer_.reset();  // nobody reads the room any more
            calls_.move(move_list(move), move.to->step, move.to->seq, to_text(move.to->state));
        });
    }

  private:
    template <class Call>
    Result<void> told(Call&& call) {
        return call_python<void>("the relay", [&]() -> Result<void> {
            call();
            return {};
        });
    }
    RelayCalls calls_;
    std::unique_ptr<HeldBuffer> buffer_;
};

/// How the newest delta of a run is coded; empty when there is none to look at.
std::string newest_codec(const Location& where, const Trust& trust) {
    constexpr std::uint64_t kNewest = 32;
    return long_call([&]() -> Result<std::string> {
        const RunOptions options = run_options(trust);
        auto commits = read_log(where, kNewest, options);
        if (!commits) return std::unexpected(std::move(commits).error());
        for (const CommitSummary& commit : *commits) {
            if (commit.kind != CommitKind::kDelta || commit.delta_bytes == 0) continue;
            auto surveyed = survey_commit(where, commit.seq, options);
            if (!surveyed) return std::unexpected(std::move(surveyed).error());
            return std::string(surveyed->codec ? name_of(*surveyed->codec) : "");
        }
        return std::string();
    });
}

}  // namespace

RelayReplicaOptions relay_options(const RelayCalls& calls,
                                  const std::optional<ReplicaRecord>& start,
                                  const nb::object& schema) {
    const auto hooks = std::make_shared<RelayHooks>(calls);
    RelayReplicaOptions options;
    options.at = start;
    if (!schema.is_none()) {
        std::vector<TensorInfo> tensors;
        for (const nb::handle entry : schema) tensors.push_back(tensor_info(entry));
        options.schema = value_of(Schema::make(std::move(tensors)));
    }
    options.room = [hooks](std::span<const TouchedTensor> tensors) { return hooks->room(tensors); };
    options.ask = [hooks](const StateDigest& at) { return hooks->ask(at); };
    options.asked = [hooks] { return hooks->asked(); };
    options.on_move = [hooks](const ReplicaMove& move) { return hooks->move(move); };
    options.on_adopt = [hooks](const std::filesystem::path& folder, const Schema& adopted,
                               const ReplicaRecord& at) {
        return hooks->adopt(folder, adopted, at);
    };
    return options;
}

void bind_relay(nb::module_& module) {
    nb::class_<ReplicaRecord>(module, "ReplicaRecord", "Where a replica stands.")
        .def_ro("step", &ReplicaRecord::step)
        .def_ro("seq", &ReplicaRecord::seq)
        .def_prop_ro("state", [](const ReplicaRecord& self) { return to_text(self.state); });
    module.def("newest_codec", &newest_codec, "where"_a, "trust"_a,
               "How the newest delta of a run is coded; empty when there is none.");
    module.def(
        "digest_of_words",
        [](nb::handle tensor, std::uint64_t first_word, nb::handle words) {
            HeldBuffer held;
            if (!held.hold(words, false)) {
                raise(Error{ErrorKind::kInvalid, "words must lie in contiguous memory"});
            }
            const StateDigest digest =
                digest_of_words(tensor_info(tensor), first_word, held.bytes());
            return std::pair(digest.a, digest.b);
        },
        "tensor"_a, "first_word"_a, "words"_a,
        "What words of a tensor (name, dtype, shape) add to the digest of a state.");
}

}  // namespace wisp::python
