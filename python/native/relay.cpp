#include "relay.hpp"

#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>

#include <memory>

#include "arrays.hpp"
#include "bindings.hpp"
#include "calls.hpp"
#include "replica_view.hpp"

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

}  // namespace

RelayReplicaOptions relay_options(const RelayCalls& calls) {
    const auto hooks = std::make_shared<RelayHooks>(calls);
    RelayReplicaOptions options;
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
