// Words of a state out of an engine's memory: what wisp.engine answers its feed with, on CPUs.
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <deque>

#include "bindings.hpp"
#include "element_memory.hpp"
#include "job_threads.hpp"

namespace wisp::python {
namespace {

using namespace nb::literals;

/// What a stage will write to a target, ascending: walked along with offsets that mostly ascend.
template <class T>
class StagedElements {
  public:
    StagedElements(std::span<const std::int64_t> offsets, std::span<const T> bits)
        : offsets_(offsets), bits_(bits) {}

    /// Puts what is staged of `count` elements from an offset on into `elements`.
    void lay_over(std::int64_t offset, std::int64_t count, T* elements) {
        if (offsets_.empty()) return;
        seek(offset);
        for (std::size_t i = at_; i < offsets_.size() && offsets_[i] < offset + count; ++i) {
            elements[offsets_[i] - offset] = bits_[i];
        }
    }

  private:
    /// To the first one at or past the offset: near where the last search ended, as a rule.
    void seek(std::int64_t offset) {
        if (at_ > 0 && offsets_[at_ - 1] >= offset) at_ = 0;
        std::size_t step = 1;
        while (at_ + step < offsets_.size() && offsets_[at_ + step] < offset) {
            at_ += step;
            step *= 2;
        }
        const auto end = std::min(at_ + step + 1, offsets_.size());
        const auto found =
            std::lower_bound(offsets_.begin() + static_cast<std::ptrdiff_t>(at_),
                             offsets_.begin() + static_cast<std::ptrdiff_t>(end), offset);
        at_ = static_cast<std::size_t>(found - offsets_.begin());
    }
    std::span<const std::int64_t> offsets_;
    std::span<const T> bits_;
    std::size_t at_ = 0;
};

/// Words of one tensor that lie, in part or whole, in one piece.
struct WordJob {
    PieceMap piece;
    std::size_t width;
    ElementBuffer memory;
    ElementBuffer words;   // their numbers
    ElementBuffer buffer;  // for them
    ElementBuffer staged_offsets;
    ElementBuffer staged_bits;

    explicit WordJob(nb::handle entry)
        : piece(nb::cast<const PieceMap&>(entry[0])),
          width(nb::cast<std::size_t>(entry[2])),
          memory(entry[1], false),
          words(entry[3], false),
          buffer(entry[4], true),
          staged_offsets(entry[5], false),
          staged_bits(entry[6], false) {
        piece.check_inside(memory.size() / width);
        if (buffer.size() / 8 < words.size() / 4 ||
            staged_bits.size() / width < staged_offsets.size() / 8) {
            raise(Error{ErrorKind::kInvalid, "there is less room than there are words"});
        }
    }
    std::size_t count() const { return words.size() / 4; }
};

/// In a piece whose rows are whole words, the first element of a word speaks for the rest.
bool has_whole_words(const PieceMap& piece, std::int64_t per_word) {
    bool in_rows = piece.source % per_word == 0 && !piece.dims.empty();
    for (std::size_t i = 0; i < piece.dims.size() && in_rows; ++i) {
        const auto& [size, stride, step] = piece.dims[i];
        in_rows = i + 1 < piece.dims.size() ? stride % per_word == 0
                                            : stride == 1 && step == 1 && size % per_word == 0;
    }
    return in_rows;
}

/// Some of a job's words. What lies in other pieces stays as it is in the buffer.
template <class T>
void fill_words(const WordJob& job, std::size_t first, std::size_t past) {
    constexpr auto kPerWord = static_cast<std::int64_t>(8 / sizeof(T));
    const auto indices = job.words.as<const std::int32_t>().first(past);
    const auto elements = job.memory.as<const T>();
    const auto out = job.buffer.as<T>();
    const PieceMap& piece = job.piece;
    const std::int64_t end = piece.end();
    StagedElements<T> staged(job.staged_offsets.as<const std::int64_t>(),
                             job.staged_bits.as<const T>());
    const auto begin = static_cast<std::size_t>(
        std::lower_bound(indices.begin() + static_cast<std::ptrdiff_t>(first), indices.end(),
                         piece.source / kPerWord) -
        indices.begin());
    const auto is_here = [&](std::size_t i) { return i < past && indices[i] * kPerWord < end; };
    if (!has_whole_words(piece, kPerWord)) {
        for (std::size_t i = begin; is_here(i); ++i) {
            for (std::int64_t lane = 0; lane < kPerWord; ++lane) {
                const std::int64_t offset = piece.find(indices[i] * kPerWord + lane);
                if (offset < 0) continue;
                T element = elements[static_cast<std::size_t>(offset)];
                staged.lay_over(offset, 1, &element);
                out[i * kPerWord + static_cast<std::size_t>(lane)] = element;
            }
        }
        return;
    }
    const bool is_run = piece.is_run();
    const auto find = [&](std::size_t i) {
        if (!is_here(i)) return std::int64_t{-1};
        const std::int64_t position = indices[i] * kPerWord;
        const std::int64_t offset =
            is_run ? position - piece.source + piece.target : piece.find(position);
        if (offset >= 0) __builtin_prefetch(elements.data() + offset);
        return offset;
    };
    std::array<std::int64_t, kAhead> ahead;
    for (std::size_t i = 0; i < kAhead; ++i) ahead[i] = find(begin + i);
    std::size_t slot = 0;
    for (std::size_t i = begin; is_here(i); ++i) {
        const std::int64_t offset = ahead[slot];
        ahead[slot] = find(i + kAhead);
        slot = slot + 1 == kAhead ? 0 : slot + 1;
        if (offset < 0) continue;
        T* word = out.data() + i * kPerWord;
        std::memcpy(word, elements.data() + offset, 8);
        staged.lay_over(offset, kPerWord, word);
    }
}

/// Puts the words that lie in pieces into their buffers: many tensors at once, on several threads.
void fill_all(nb::iterable entries) {
    constexpr std::size_t kUnit = 1U << 15;  // words
    std::deque<WordJob> jobs;
    for (const nb::handle entry : entries) jobs.emplace_back(entry);
    const Unlocked unlocked;
    const auto units = units_of(jobs, kUnit);
    for_each_job(units.size(), [&](std::size_t i) {
        with_width(units[i].job->width, [&]<class T>(T) {
            fill_words<T>(*units[i].job, units[i].first, units[i].past);
        });
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
            "source"_a, "target"_a, "dims"_a);
    module.def("fill_words", &fill_all, "jobs"_a,
               nb::sig("def fill_words(jobs: Iterable[object]) -> None"),
               "Of (piece, memory, width, numbers of words, buffer, staged offsets, staged bits) "
               "each: the words as they are in memory once what is staged is written to it.");
}

}  // namespace wisp::python
