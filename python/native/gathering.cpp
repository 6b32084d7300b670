// Elements of an engine's memory by where a checkpoint has them: what wisp.engine does for each
// changed element of each step, on CPUs.
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cstring>
#include <span>
#include <tuple>

#include "arrays.hpp"
#include "bindings.hpp"
#include "calls.hpp"

namespace wisp::python {
namespace {

using namespace nb::literals;

constexpr std::size_t kAhead = 24;  // how far what is needed is asked for before it is

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

/// Python's memory, read or written as elements of one type.
class Held {
  public:
    Held(nb::handle object, bool writable) {
        if (!buffer_.hold(object, writable)) {
            raise(Error{ErrorKind::kInvalid, "what is gathered must lie in contiguous memory"});
        }
    }
    template <class T>
    std::span<T> as() const {
        const auto bytes = buffer_.bytes();
        return {reinterpret_cast<T*>(bytes.data()), bytes.size() / sizeof(T)};
    }

  private:
    HeldBuffer buffer_;
};

/// Calls body(T{}) with the unsigned type of that width. Others may use the interpreter meanwhile.
template <class Body>
void with_width(std::size_t width, Body&& body) {
    const Unlocked unlocked;
    switch (width) {
        case 1: return body(std::uint8_t{});
        case 2: return body(std::uint16_t{});
        case 4: return body(std::uint32_t{});
        default: return body(std::uint64_t{});
    }
}

/// Those of the ascending positions that lie in a piece: their offsets, and what goes with them.
std::size_t locate(const PieceMap& piece, nb::handle positions, std::size_t width, nb::handle bits,
                   nb::handle old_bits, nb::handle offsets_out, nb::handle bits_out,
                   nb::handle old_out) {
    const Held from(positions, false);
    const Held new_from(bits, false);
    const Held old_from(old_bits, false);
    const Held to(offsets_out, true);
    const Held new_to(bits_out, true);
    const Held old_to(old_out, true);
    const auto places = from.as<const std::int64_t>();
    const auto offsets = to.as<std::int64_t>();
    const bool has_room = offsets.size() >= places.size() &&
                          new_to.as<std::byte>().size() >= places.size() * width &&
                          new_from.as<const std::byte>().size() >= places.size() * width;
    const std::size_t old_size = old_from.as<const std::byte>().size();
    if (!has_room || (old_size != 0 && (old_size < places.size() * width ||
                                        old_to.as<std::byte>().size() < places.size() * width))) {
        raise(Error{ErrorKind::kInvalid, "there is less room than there are positions"});
    }
    std::size_t count = 0;
    with_width(width, [&]<class T>(T) {
        const auto new_in = new_from.as<const T>();
        const auto old_in = old_from.as<const T>();
        const auto new_bits = new_to.as<T>();
        const auto old_kept = old_to.as<T>();
        const auto first = static_cast<std::size_t>(std::ranges::lower_bound(places, piece.source) -
                                                    places.begin());
        const std::int64_t end = piece.end();
        for (std::size_t i = first; i < places.size() && places[i] < end; ++i) {
            const std::int64_t offset = piece.find(places[i]);
            if (offset < 0) continue;
            offsets[count] = offset;
            new_bits[count] = new_in[i];
            if (!old_in.empty()) old_kept[count] = old_in[i];
            ++count;
        }
    });
    return count;
}

/// The elements of memory at offsets; false when one lies outside.
bool take(nb::handle memory, std::size_t width, nb::handle offsets, nb::handle out) {
    const Held from(memory, false);
    const Held where(offsets, false);
    const Held to(out, true);
    const auto places = where.as<const std::int64_t>();
    if (to.as<std::byte>().size() < places.size() * width) {
        raise(Error{ErrorKind::kInvalid, "there is less room than there are offsets"});
    }
    bool inside = true;
    with_width(width, [&]<class T>(T) {
        const auto elements = from.as<const T>();
        const auto taken = to.as<T>();
        for (std::size_t i = 0; i < places.size(); ++i) {
            if (i + kAhead < places.size()) {
                __builtin_prefetch(elements.data() + places[i + kAhead]);
            }
            const auto place = static_cast<std::uint64_t>(places[i]);
            if (place >= elements.size()) {
                inside = false;
                return;
            }
            taken[i] = elements[place];
        }
    });
    return inside;
}

/// Puts the elements of the words that lie in a piece into the room, one word of 8 bytes for each
/// index. What lies in other pieces stays as it is.
void fill_words(const PieceMap& piece, nb::handle memory, std::size_t width, nb::handle words,
                nb::handle room) {
    const Held from(memory, false);
    const Held which(words, false);
    const Held to(room, true);
    const auto indices = which.as<const std::int32_t>();
    const std::int64_t end = piece.end();
    piece.check_inside(from.as<const std::byte>().size() / width);
    if (to.as<std::byte>().size() < indices.size() * 8) {
        raise(Error{ErrorKind::kInvalid, "there is less room than there are words"});
    }
    with_width(width, [&]<class T>(T) {
        constexpr std::int64_t kPerWord = 8 / sizeof(T);
        const auto elements = from.as<const T>();
        const auto out = to.as<T>();
        // In a piece whose rows are whole words, the first element of a word speaks for the rest.
        bool in_rows = piece.source % kPerWord == 0 && !piece.dims.empty();
        for (std::size_t i = 0; i < piece.dims.size() && in_rows; ++i) {
            const auto& [size, stride, step] = piece.dims[i];
            in_rows = i + 1 < piece.dims.size() ? stride % kPerWord == 0
                                                : stride == 1 && step == 1 && size % kPerWord == 0;
        }
        std::vector<std::int64_t> ahead(kAhead, -1);
        const auto first = static_cast<std::size_t>(
            std::ranges::lower_bound(indices, piece.source / kPerWord) - indices.begin());
        const auto find = [&](std::size_t i) {
            const bool there = i < indices.size() && indices[i] * kPerWord < end;
            const std::int64_t offset = there ? piece.find(indices[i] * kPerWord) : -1;
            if (offset >= 0) __builtin_prefetch(elements.data() + offset);
            return offset;
        };
        for (std::size_t i = first; in_rows && i < std::min(first + kAhead, indices.size()); ++i) {
            ahead[i % kAhead] = find(i);
        }
        for (std::size_t i = first; i < indices.size() && indices[i] * kPerWord < end; ++i) {
            T* word = out.data() + i * kPerWord;
            if (in_rows) {
                const std::int64_t offset = ahead[i % kAhead];
                ahead[i % kAhead] = find(i + kAhead);
                if (offset >= 0) std::memcpy(word, elements.data() + offset, 8);
                continue;
            }
            for (std::int64_t lane = 0; lane < kPerWord; ++lane) {
                const std::int64_t offset = piece.find(indices[i] * kPerWord + lane);
                if (offset >= 0) word[lane] = elements[static_cast<std::size_t>(offset)];
            }
        }
    });
}

}  // namespace

void bind_gathering(nb::module_& module) {
    nb::class_<PieceMap>(module, "PieceMap", "Use wisp.engine.plan.load_plan.Piece.")
        .def(
            "__init__",
            [](PieceMap* self, std::int64_t source, std::int64_t target,
               std::vector<std::tuple<std::int64_t, std::int64_t, std::int64_t>> dims) {
                for (const auto& [size, stride, step] : dims) {
                    if (stride < 1) {
                        raise(Error{ErrorKind::kInvalid, "strides of a piece are positive"});
                    }
                }
                new (self) PieceMap{source, target, std::move(dims)};
            },
            "source"_a, "target"_a, "dims"_a)
        .def("locate", &locate, "positions"_a, "width"_a, "bits"_a, "old_bits"_a, "offsets_out"_a,
             "bits_out"_a, "old_out"_a)
        .def("fill_words", &fill_words, "memory"_a, "width"_a, "words"_a, "room"_a);
    module.def("take_elements", &take, "memory"_a, "width"_a, "offsets"_a, "out"_a);
}

}  // namespace wisp::python
