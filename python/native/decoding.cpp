// Deltas over an engine's own memory: what a rank that holds whole tensors does for itself.
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <deque>
#include <filesystem>
#include <optional>

#include "bindings.hpp"
#include "element_memory.hpp"
#include "job_threads.hpp"
#include "reports.hpp"
#include "wisp/relay.hpp"

namespace wisp::python {
namespace {

using namespace nb::literals;

/// One tensor of a checkpoint, which lies in an engine's memory without a gap.
class RankTensor {
  public:
    RankTensor(nb::handle entry, const TensorInfo& info)
        : memory_(entry[0], false),
          first_(nb::cast<std::int64_t>(entry[1])),
          offsets_(entry[2], false),
          fresh_(entry[3], false),
          width_(traits_of(info.dtype).element_bytes),
          count_(static_cast<std::int64_t>(element_count_of(info))) {
        const auto held = static_cast<std::int64_t>(memory_.size() / width_);
        const std::size_t staged = offsets_.size() / 8 * width_;
        if (first_ < 0 || count_ > held || first_ > held - count_ || fresh_.size() != staged) {
            raise(Error{ErrorKind::kInvalid, "a tensor does not lie in the memory named for it"});
        }
    }

    std::span<const std::byte> bytes() const {
        return memory_.as<const std::byte>().subspan(static_cast<std::size_t>(first_) * width_,
                                                     static_cast<std::size_t>(count_) * width_);
    }
    void staged(std::uint64_t first_element, std::uint64_t count, BlockChanges& into) const {
        into.clear();
        into.element_bytes = static_cast<unsigned>(width_);
        const auto offsets = offsets_.as<const std::int64_t>();
        const std::int64_t from = first_ + static_cast<std::int64_t>(first_element);
        const auto first = std::ranges::lower_bound(offsets, from);
        const auto past =
            std::ranges::lower_bound(offsets, from + static_cast<std::int64_t>(count));
        into.positions.resize(static_cast<std::size_t>(past - first));
        std::ranges::transform(first, past, into.positions.begin(), [&](std::int64_t offset) {
            return static_cast<std::uint32_t>(offset - from);
        });
        const auto at = static_cast<std::size_t>(first - offsets.begin()) * width_;
        const auto bytes = static_cast<std::size_t>(past - first) * width_;
        const auto fresh = fresh_.as<const std::byte>().subspan(at, bytes);
        into.new_bits.assign(fresh.begin(), fresh.end());
    }

  private:
    ElementBuffer memory_;
    std::int64_t first_;  // in it
    ElementBuffer offsets_;
    ElementBuffer fresh_;
    std::size_t width_;
    std::int64_t count_;
};

class RankWeights : public StagedWeights {
  public:
    RankWeights(Schema schema, nb::handle entries) : schema_(std::move(schema)) {
        for (const nb::handle entry : nb::iter(entries)) {
            if (tensors_.size() == schema_.tensors().size()) break;
            tensors_.emplace_back(entry, schema_.tensors()[tensors_.size()]);
        }
        if (tensors_.size() != schema_.tensors().size()) {
            raise(Error{ErrorKind::kInvalid, "there are fewer tensors than the run has"});
        }
    }
    const Schema& schema() const override { return schema_; }
    std::span<const std::byte> bytes(std::size_t tensor) const override {
        return tensors_[tensor].bytes();
    }
    void staged(std::size_t tensor, std::uint64_t first_element, std::uint64_t count,
                BlockChanges& into) const override {
        tensors_[tensor].staged(first_element, count, into);
    }

  private:
    Schema schema_;
    std::deque<RankTensor> tensors_;
};

/// What deltas change, block by block, until Python has made room for it.
class DecodedChanges {
  public:
    DecodedChanges(const Schema& schema, std::vector<MovedBlock> blocks)
        : blocks_(std::move(blocks)) {
        for (const MovedBlock& block : blocks_) {
            const std::string& name = schema.tensors()[block.tensor].name;
            if (tensors_.empty() || last_ != block.tensor) tensors_.emplace_back(name, 0);
            last_ = block.tensor;
            tensor_of_.push_back(tensors_.size() - 1);
            at_.push_back(tensors_.back().second);
            tensors_.back().second += block.changes.count();
        }
    }
    /// (name, how many elements changed)
    const std::vector<std::pair<std::string, std::size_t>>& tensors() const { return tensors_; }

    /// Into [(positions as u32, or i64, new bits, old bits), …], one for each of tensors(). Once.
    void take(nb::iterable room) {
        if (is_taken_) raise(Error{ErrorKind::kInvalid, "what is decoded is taken once"});
        std::deque<Columns> columns;
        for (const nb::handle entry : room) columns.emplace_back(entry);
        if (columns.size() != tensors_.size()) {
            raise(Error{ErrorKind::kInvalid, "there is room for other tensors"});
        }
        for (std::size_t i = 0; i < blocks_.size(); ++i) {
            const Columns& into = columns[tensor_of_[i]];
            const std::size_t count = tensors_[tensor_of_[i]].second;
            const std::size_t bits = count * blocks_[i].changes.element_bytes;
            if ((into.places.size() != count * 4 && into.places.size() != count * 8) ||
                into.fresh.size() != bits || into.before.size() != bits) {
                raise(Error{ErrorKind::kInvalid, "there is less room than there are changes"});
            }
        }
        is_taken_ = true;  // before another thread may come
        const Unlocked unlocked;
        for_each_job(blocks_.size(), [&](std::size_t i) {
            MovedBlock& block = blocks_[i];
            const Columns& into = columns[tensor_of_[i]];
            const bool is_wide = into.places.size() == tensors_[tensor_of_[i]].second * 8;
            if (is_wide) {
                put_places<std::int64_t>(block, into.places.as<std::int64_t>(), at_[i]);
            } else {
                put_places<std::uint32_t>(block, into.places.as<std::uint32_t>(), at_[i]);
            }
            const std::size_t at = at_[i] * block.changes.element_bytes;
            std::ranges::copy(block.changes.new_bits,
                              into.fresh.as<std::byte>().subspan(at).begin());
            std::ranges::copy(block.changes.old_bits,
                              into.before.as<std::byte>().subspan(at).begin());
            block.changes = {};
        });
        blocks_.clear();
    }

  private:
    struct Columns {
        ElementBuffer places;
        ElementBuffer fresh;
        ElementBuffer before;
        explicit Columns(nb::handle entry)
            : places(entry[0], true), fresh(entry[1], true), before(entry[2], true) {}
    };

    template <class Place>
    static void put_places(const MovedBlock& block, std::span<Place> into, std::size_t at) {
        const auto first = static_cast<Place>(block.first_element);
        for (const std::uint32_t position : block.changes.positions) {
            into[at++] = first + static_cast<Place>(position);
        }
    }
    std::vector<MovedBlock> blocks_;
    std::vector<std::size_t> tensor_of_;  // of each block: in tensors_
    std::vector<std::size_t> at_;         // of each block: its first change among its tensor's
    std::vector<std::pair<std::string, std::size_t>> tensors_;
    std::size_t last_ = 0;
    bool is_taken_ = false;
};

}  // namespace

void bind_decoding(nb::module_& module) {
    nb::class_<DecodedChanges>(module, "DecodedChanges", "What deltas change; taken once.")
        .def_prop_ro("tensors", &DecodedChanges::tensors)
        .def("take", &DecodedChanges::take, "room"_a,
             nb::sig("def take(self, room: Iterable[object]) -> None"));
    module.def(
        "decode_staged",
        [](nb::handle schema, nb::handle tensors, const std::vector<std::string>& deltas,
           const std::string& from, const std::string& to, const std::string& whose) {
            const RankWeights weights(schema_from(schema), tensors);
            const StateDigest base = digest_from(from);
            const StateDigest result = digest_from(to);
            const std::vector<std::filesystem::path> files(deltas.begin(), deltas.end());
            std::optional<Result<std::vector<MovedBlock>>> blocks;
            {
                const Unlocked unlocked;
                blocks.emplace(decode_staged(weights, files, base, result, whose));
            }
            return DecodedChanges(weights.schema(), value_of(std::move(*blocks)));
        },
        "schema"_a, "tensors"_a, "deltas"_a, "base"_a, "result"_a, "whose"_a,
        nb::sig("def decode_staged(schema: Sequence[object], tensors: Iterable[object], "
                "deltas: Sequence[str], base: str, result: str, whose: str) -> DecodedChanges"),
        "Proves the deltas over tensors that are (memory, where in it the tensor begins, staged "
        "offsets, staged bits) each, in the order of the schema.");
}

}  // namespace wisp::python
