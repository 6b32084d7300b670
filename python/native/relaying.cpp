#include "relaying.hpp"

#include <nanobind/stl/map.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <map>
#include <memory>
#include <vector>

#include "arrays.hpp"
#include "bindings.hpp"
#include "calls.hpp"
#include "told_move.hpp"

namespace wisp::python {
namespace {

using namespace nb::literals;

/// As Python holds it: it does not change.
struct SlicesInPython {
    std::shared_ptr<const HeldSlices> slices;
};

using DimensionList = std::vector<std::pair<std::uint64_t, std::uint64_t>>;
using PartList = std::vector<std::pair<std::uint64_t, DimensionList>>;

std::vector<HeldPart> parts_of(const PartList& list) {
    std::vector<HeldPart> parts;
    for (const auto& [first, dimensions] : list) {
        HeldPart part{first, {}};
        for (const auto& [size, stride] : dimensions) part.dimensions.push_back({size, stride});
        parts.push_back(std::move(part));
    }
    return parts;
}

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
    std::shared_ptr<const HeldSlices> held() {
        return slices_from([&] { return calls_.held(); });
    }
    std::shared_ptr<const HeldSlices> held_of(const Schema& schema) {
        return slices_from([&] { return calls_.held_of(schema_list(schema)); });
    }
    Result<void> adopt(const std::filesystem::path& folder, const Schema& schema,
                       const ReplicaRecord& at) {
        return told([&] {
            calls_.adopt(folder.string(), schema_list(schema), at.step, at.seq, to_text(at.state));
        });
    }
    Result<bool> hand_over(const std::vector<std::filesystem::path>& deltas,
                           const ReplicaRecord& after) {
        return call_python<bool>("the relay", [&]() -> Result<bool> {
            nb::list files;
            for (const std::filesystem::path& delta : deltas) files.append(delta.string());
            return nb::cast<bool>(
                calls_.hand_over(files, after.step, after.seq, to_text(after.state)));
        });
    }
    Result<void> move(const ReplicaMove& move) {
        return told([&] {
            buffer_.reset();  // nobody reads the room any more
            tell_while_it_lasts<ToldMove>(move, [&](const auto& told) {
                calls_.move(told, move.to->step, move.to->seq, to_text(move.to->state),
                            nb::make_tuple(move.moved_by.a, move.moved_by.b));
            });
        });
    }

  private:
    /// Null if the call fails, too.
    template <class Call>
    std::shared_ptr<const HeldSlices> slices_from(Call&& call) {
        using Held = std::shared_ptr<const HeldSlices>;
        auto found = call_python<Held>("the relay", [&]() -> Result<Held> {
            const nb::object given = call();
            return given.is_none() ? nullptr : nb::cast<SlicesInPython&>(given).slices;
        });
        return found ? *found : nullptr;
    }
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

}  // namespace

RelayReplicaOptions relay_options(const RelayCalls& calls) {
    const auto hooks = std::make_shared<RelayHooks>(calls);
    RelayReplicaOptions options;
    options.room = [hooks](std::span<const TouchedTensor> tensors) { return hooks->room(tensors); };
    options.ask = [hooks](const StateDigest& at) { return hooks->ask(at); };
    options.held = [hooks] { return hooks->held(); };
    options.held_of = [hooks](const Schema& coming) { return hooks->held_of(coming); };
    options.asked = [hooks] { return hooks->asked(); };
    options.hand_over = [hooks](const std::vector<std::filesystem::path>& deltas,
                                const ReplicaRecord& after) {
        return hooks->hand_over(deltas, after);
    };
    options.on_move = [hooks](const ReplicaMove& move) { return hooks->move(move); };
    options.on_adopt = [hooks](const std::filesystem::path& folder, const Schema& adopted,
                               const ReplicaRecord& at) {
        return hooks->adopt(folder, adopted, at);
    };
    return options;
}

void bind_relay(nb::module_& module) {
    nb::class_<SlicesInPython>(
        module, "HeldSlices", "What is held of tensors: name -> [(first, [(size, stride), …]), …].")
        .def(nb::new_([](const std::map<std::string, PartList>& tensors) {
                 auto slices = std::make_shared<HeldSlices>();
                 for (const auto& [name, list] : tensors) (*slices)[name] = parts_of(list);
                 return SlicesInPython{std::move(slices)};
             }),
             "tensors"_a);
    module.def(
        "runs_of_tiles",
        [](nb::handle tensor, unsigned slices, const PartList& parts) {
            const TileRuns runs =
                value_of(runs_of_tiles(tensor_info(tensor), slices, parts_of(parts)));
            return std::pair(runs.needed, runs.missing);
        },
        "tensor"_a, "slices"_a, "parts"_a,
        "Elements [(first, past), …] of the tiles of which something is held; those that are not.");
    module.def(
        "digest_of_indexed_words",
        [](nb::handle tensor, nb::handle indices, nb::handle words) {
            HeldBuffer places;
            HeldBuffer held;
            if (!places.hold(indices, false) || !held.hold(words, false) ||
                places.bytes().size() * 2 != held.bytes().size()) {
                raise(Error{ErrorKind::kInvalid, "words and their indices must be as many"});
            }
            const StateDigest digest = digest_of_words(
                tensor_info(tensor),
                std::span(reinterpret_cast<const std::uint32_t*>(places.bytes().data()),
                          places.bytes().size() / 4),
                std::span(reinterpret_cast<const std::uint64_t*>(held.bytes().data()),
                          held.bytes().size() / 8));
            return std::pair(digest.a, digest.b);
        },
        "tensor"_a, "indices"_a, "words"_a, "As digest_of_words, of words that lie apart.");
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
