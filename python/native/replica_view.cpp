#include "replica_view.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "calls.hpp"
#include "wisp/control.hpp"
#include "wisp/result.hpp"

namespace wisp::python {
namespace {

constexpr std::size_t kShownDifferences = 5;

class SelectedWeights : public MutableWeights {
  public:
    SelectedWeights(std::shared_ptr<HostWeights> host, const Schema& schema,
                    std::vector<std::size_t> indices)
        : host_(std::move(host)), schema_(schema), indices_(std::move(indices)) {}
    const Schema& schema() const override { return schema_; }
    std::span<const std::byte> bytes(std::size_t tensor) const override {
        return host_->bytes(indices_[tensor]);
    }
    std::span<std::byte> writable_bytes(std::size_t tensor) override {
        return host_->writable_bytes(indices_[tensor]);
    }

  private:
    std::shared_ptr<HostWeights> host_;
    Schema schema_;
    std::vector<std::size_t> indices_;
};

std::string told(const TensorInfo& tensor) {
    return fmt::format("{} {}", traits_of(tensor.dtype).name, shape_text(tensor.shape));
}

/// Two tensors of the run that would lie on each other, if any do.
std::optional<std::string> overlap(const HostWeights& host, const Schema& schema,
                                   const std::vector<std::size_t>& indices) {
    std::map<const std::byte*, std::size_t> starts;
    for (std::size_t i = 0; i < indices.size(); ++i) {
        const auto bytes = host.bytes(indices[i]);
        if (bytes.empty()) continue;
        const auto next = starts.lower_bound(bytes.data());
        const auto clashes = [&](auto other) {
            const auto with = host.bytes(indices[other->second]);
            return with.data() < bytes.data() + bytes.size() &&
                   bytes.data() < with.data() + with.size();
        };
        auto clash = starts.end();
        if (next != starts.end() && clashes(next)) clash = next;
        if (next != starts.begin() && clashes(std::prev(next))) clash = std::prev(next);
        if (clash != starts.end()) {
            return fmt::format(
                "'{}' and '{}' share memory in the target, but are two tensors in "
                "the run; pass own_copy=True to follow it through a copy",
                printable(schema.tensors()[clash->second].name),
                printable(schema.tensors()[i].name));
        }
        starts[bytes.data()] = i;
    }
    return std::nullopt;
}

}  // namespace

const Weights& TakenState::weights() const {
    if (weights_ == nullptr) {
        raise(Error{ErrorKind::kInvalid,
                    "this state was told and is gone; copy what is needed "
                    "while it is told"});
    }
    return *weights_;
}

Result<std::shared_ptr<MutableWeights>> select_target(std::shared_ptr<HostWeights> host,
                                                      const Schema& schema, bool strict) {
    std::vector<std::string> differences;
    std::vector<std::size_t> indices;
    std::set<const std::byte*> used;
    for (const TensorInfo& wanted : schema.tensors()) {
        const auto found = host->schema().find(wanted.name);
        if (!found) {
            differences.push_back(fmt::format("'{}' ({}) is in the run, not in the target",
                                              printable(wanted.name), told(wanted)));
            continue;
        }
        const TensorInfo& mine = host->schema().tensors()[*found];
        if (mine != wanted) {
            differences.push_back(fmt::format("'{}' is {} in the run, {} in the target",
                                              printable(wanted.name), told(wanted), told(mine)));
            continue;
        }
        indices.push_back(*found);
        used.insert(host->bytes(*found).data());
    }
    for (std::size_t i = 0; strict && i < host->schema().tensors().size(); ++i) {
        const TensorInfo& mine = host->schema().tensors()[i];
        if (schema.find(mine.name) || used.contains(host->bytes(i).data())) continue;
        differences.push_back(fmt::format("'{}' ({}) is in the target, not in the run",
                                          printable(mine.name), told(mine)));
    }
    if (!differences.empty()) {
        std::string text = "the target is not the model of the run: ";
        for (std::size_t i = 0; i < std::min(differences.size(), kShownDifferences); ++i) {
            text += (i == 0 ? "" : "; ") + differences[i];
        }
        if (differences.size() > kShownDifferences) {
            text += fmt::format("; and {} more", differences.size() - kShownDifferences);
        }
        return fail(ErrorKind::kInvalid, std::move(text));
    }
    if (auto clash = overlap(*host, schema, indices)) {
        return fail(ErrorKind::kInvalid, std::move(*clash));
    }
    return std::make_shared<SelectedWeights>(std::move(host), schema, std::move(indices));
}

bool Gate::close() {
    constexpr Milliseconds kLook(50);  // how often it looks whether the work is to end
    std::unique_lock lock(mutex_);
    while (!opened_.wait_for(lock, kLook, [&] { return !closed_; })) {
        if (stopped()) return false;
    }
    closed_ = true;
    return true;
}

void Gate::open() {
    const std::scoped_lock lock(mutex_);
    closed_ = false;
    opened_.notify_one();
}

}  // namespace wisp::python
