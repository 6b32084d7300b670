#include "python_streams.hpp"

#include "calls.hpp"

namespace wisp::python {
namespace {

std::unique_ptr<HeldBuffer> held(nb::handle object) {
    auto buffer = std::make_unique<HeldBuffer>();
    if (!buffer->hold(object, false)) {
        raise(Error{ErrorKind::kInvalid, "a piece of the weights has no contiguous memory"});
    }
    return buffer;
}

}  // namespace

PythonWeights::PythonWeights(Schema schema, nb::callable next, nb::callable restart)
    : schema_(std::move(schema)), next_(std::move(next)), restart_(std::move(restart)) {}

Result<void> PythonWeights::restart() {
    return call_python<void>("reading the weights", [&]() -> Result<void> {
        restart_();
        return {};
    });
}

Result<std::span<const WeightPiece>> PythonWeights::next() {
    using Pieces = std::span<const WeightPiece>;
    return call_python<Pieces>("reading the weights", [&]() -> Result<Pieces> {
        pieces_.clear();
        buffers_.clear();
        const nb::object group = next_();
        for (const nb::handle entry : group) {
            buffers_.push_back(held(entry[2]));
            pieces_.push_back({nb::cast<std::size_t>(entry[0]), nb::cast<std::uint64_t>(entry[1]),
                               buffers_.back()->bytes(), nb::cast<bool>(entry[3])});
        }
        return Pieces(pieces_);
    });
}

PythonChanges::PythonChanges(Schema schema, nb::callable next)
    : schema_(std::move(schema)), next_(std::move(next)) {}

Result<TensorChanges> PythonChanges::next() {
    return call_python<TensorChanges>("comparing the weights", [&]() -> Result<TensorChanges> {
        const nb::object entry = next_();
        if (entry.is_none()) return TensorChanges{};
        positions_ = held(entry[2]);
        old_bits_ = held(entry[3]);
        new_bits_ = held(entry[4]);
        const auto bytes = positions_->bytes();
        if (bytes.size() % 4 != 0 || reinterpret_cast<std::uintptr_t>(bytes.data()) % 4 != 0) {
            return fail(ErrorKind::kInvalid, "positions are 32-bit numbers");
        }
        return TensorChanges{
            nb::cast<std::size_t>(entry[0]),
            nb::cast<std::uint64_t>(entry[1]),
            {reinterpret_cast<const std::uint32_t*>(bytes.data()), bytes.size() / 4},
            old_bits_->bytes(),
            new_bits_->bytes()};
    });
}

}  // namespace wisp::python
