// Elements of an engine's memory by where a checkpoint has them, as Python hands them over.
#pragma once

#include <cstdint>
#include <span>
#include <tuple>
#include <vector>

#include "arrays.hpp"
#include "calls.hpp"

namespace wisp::python {

inline constexpr std::size_t kAhead = 24;  // how far what is needed is asked for before it is

/// load_plan.Piece: (size, stride in the checkpoint, stride in the target) by falling stride.
struct PieceMap {
    std::int64_t source = 0;
    std::int64_t target = 0;
    std::vector<std::tuple<std::int64_t, std::int64_t, std::int64_t>> dims;

    std::int64_t end() const {
        std::int64_t last = source;
        for (const auto& [size, stride, step] : dims) last += (size - 1) * stride;
        return last + 1;
    }
    /// Raises Invalid unless all of it lies in a target of so many elements.
    void check_inside(std::size_t elements) const {
        std::int64_t last = target;
        for (const auto& [size, stride, step] : dims) last += (size - 1) * step;
        if (target < 0 || last < 0 || static_cast<std::size_t>(last) >= elements) {
            raise(Error{ErrorKind::kInvalid, "a piece leads out of its target"});
        }
    }
    /// Its elements follow each other in both.
    bool is_run() const {
        return dims.size() == 1 && std::get<1>(dims[0]) == 1 && std::get<2>(dims[0]) == 1;
    }
    /// Where in the target an element of the checkpoint is; negative: not in this piece.
    std::int64_t find(std::int64_t position) const {
        std::int64_t rest = position - source;
        std::int64_t offset = target;
        if (rest < 0) return -1;
        for (const auto& [size, stride, step] : dims) {
            const std::int64_t at = stride == 1 ? rest : rest / stride;
            if (at >= size) return -1;
            offset += at * step;
            rest -= at * stride;
        }
        return rest == 0 ? offset : -1;
    }
};

/// Python's memory, read or written as elements of one type; none of it for None.
class ElementBuffer {
  public:
    ElementBuffer(nb::handle object, bool writable) {
        if (!object.is_none() && !buffer_.hold(object, writable)) {
            raise(Error{ErrorKind::kInvalid, "elements must lie in contiguous memory"});
        }
    }
    template <class T>
    std::span<T> as() const {
        const auto bytes = buffer_.bytes();
        return {reinterpret_cast<T*>(bytes.data()), bytes.size() / sizeof(T)};
    }
    std::size_t size() const { return buffer_.bytes().size(); }

  private:
    HeldBuffer buffer_;
};

/// Calls body(T{}) with the unsigned type of that width.
template <class Body>
auto with_width(std::size_t width, Body&& body) {
    switch (width) {
        case 1: return body(std::uint8_t{});
        case 2: return body(std::uint16_t{});
        case 4: return body(std::uint32_t{});
        default: return body(std::uint64_t{});
    }
}

}  // namespace wisp::python
