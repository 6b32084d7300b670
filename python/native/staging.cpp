// What a step writes to an engine's memory, worked out beforehand: what wisp.engine does for each
// changed element of each step, on CPUs.
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <deque>
#include <functional>
#include <memory>
#include <numeric>

#include "bindings.hpp"
#include "element_memory.hpp"
#include "job_threads.hpp"

namespace wisp::python {
namespace {

using namespace nb::literals;

/// Offsets in a target, ascending, and the bits there: after, and before.
template <class T>
struct Columns {
    std::int64_t* offsets = nullptr;
    T* fresh = nullptr;
    T* before = nullptr;
    std::size_t count = 0;
};

/// Memory for them that is not filled first.
template <class T>
class OwnColumns {
  public:
    explicit OwnColumns(std::size_t room)
        : offsets_(std::make_unique_for_overwrite<std::int64_t[]>(room)),
          fresh_(std::make_unique_for_overwrite<T[]>(room)),
          before_(std::make_unique_for_overwrite<T[]>(room)) {}
    Columns<T> columns() const { return {offsets_.get(), fresh_.get(), before_.get(), 0}; }

  private:
    std::unique_ptr<std::int64_t[]> offsets_;
    std::unique_ptr<T[]> fresh_;
    std::unique_ptr<T[]> before_;
};

/// Changes of one tensor of a checkpoint, or, without a piece, of the target itself.
struct ChangePart {
    std::optional<PieceMap> piece;
    ElementBuffer places;  // u32 or i64: ascending positions; without a piece i64 offsets
    ElementBuffer fresh;
    ElementBuffer before;  // nothing: it is not known what they change
    std::size_t place_bytes;
    std::size_t count;

    ChangePart(nb::handle entry, std::size_t width)
        : places(entry[1], false), fresh(entry[2], false), before(entry[3], false) {
        if (!entry[0].is_none()) piece = nb::cast<const PieceMap&>(entry[0]);
        count = fresh.size() / width;
        place_bytes = count == 0 ? 8 : places.size() / count;
        const bool fits = places.size() == count * place_bytes && fresh.size() == count * width &&
                          (before.size() == 0 || before.size() == fresh.size()) &&
                          (place_bytes == 8 || (place_bytes == 4 && piece));
        if (!fits) raise(Error{ErrorKind::kInvalid, "changes and their places must be as many"});
    }
    bool has_before() const { return count == 0 || before.size() != 0; }
};

/// Those parts that were changed by one move, which names no element of a target with two values.
using ChangeGroup = std::deque<ChangePart>;

struct TargetJob {
    std::size_t width;
    std::size_t elements;  // of the target
    ElementBuffer memory;  // nothing: it is not in this host's memory
    ElementBuffer base_offsets;
    ElementBuffer base_fresh;
    ElementBuffer base_before;
    std::deque<ChangeGroup> groups;  // in the order of the moves
    ElementBuffer offsets;
    ElementBuffer fresh;
    ElementBuffer before;
    std::size_t most = 0;  // changes that there may be
    // What came of it.
    std::size_t count = 0;
    std::size_t differing = 0;
    bool knows_before = true;
    bool inside = true;

    explicit TargetJob(nb::handle entry)
        : width(nb::cast<std::size_t>(entry[0])),
          elements(nb::cast<std::size_t>(entry[1])),
          memory(entry[2], false),
          base_offsets(entry[3][0], false),
          base_fresh(entry[3][1], false),
          base_before(entry[3][2], false),
          offsets(entry[5][0], true),
          fresh(entry[5][1], true),
          before(entry[5][2], true) {
        for (const nb::handle group : nb::iter(entry[4])) {
            ChangeGroup& parts = groups.emplace_back();
            for (const nb::handle part : nb::iter(group)) parts.emplace_back(part, width);
            for (const ChangePart& part : parts) most += part.count;
        }
        const std::size_t base = base_offsets.size() / 8;
        most += base;
        if (base_fresh.size() != base * width || base_before.size() != base * width ||
            offsets.size() < most * 8 || fresh.size() < most * width ||
            before.size() < most * width ||
            (memory.size() != 0 && memory.size() / width < elements)) {
            raise(Error{ErrorKind::kInvalid, "there is less room than there are changes"});
        }
    }
};

/// Works out one target.
template <class T>
class TargetRun {
  public:
    explicit TargetRun(TargetJob& job) : job_(job), memory_(job.memory.as<const T>()) {}

    void run() {
        Columns<T> done = {job_.base_offsets.as<std::int64_t>().data(),
                           job_.base_fresh.as<T>().data(), job_.base_before.as<T>().data(),
                           job_.base_offsets.size() / 8};
        const Columns<T> out = {job_.offsets.as<std::int64_t>().data(), job_.fresh.as<T>().data(),
                                job_.before.as<T>().data(), 0};
        std::vector<OwnColumns<T>> kept;  // what is read of the last groups, not of all
        for (std::size_t i = 0; i < job_.groups.size() && job_.inside; ++i) {
            const ChangeGroup& group = job_.groups[i];
            const bool is_last = i + 1 == job_.groups.size();
            std::size_t most = 0;
            bool has_before = true;
            for (const ChangePart& part : group) {
                most += part.count;
                has_before = has_before && part.has_before();
            }
            job_.knows_before = job_.knows_before && has_before;
            std::optional<OwnColumns<T>> own;
            Columns<T> step = out;
            if (!is_last || done.count != 0) step = own.emplace(most).columns();
            locate(group, has_before, step);
            if (!is_inside(step)) return;
            if (done.count == 0) {
                take_before(step, has_before);
                done = step;
            } else {
                std::optional<OwnColumns<T>> merged;
                Columns<T> into = out;
                if (!is_last) into = merged.emplace(done.count + step.count).columns();
                merge(done, step, has_before, into);
                done = into;
                own = std::move(merged);
            }
            kept.clear();
            if (own) kept.push_back(std::move(*own));
        }
        job_.count = done.count;
    }

  private:
    /// All changes of a group by ascending offset.
    void locate(const ChangeGroup& group, bool has_before, Columns<T>& into) const {
        std::vector<const ChangePart*> parts;
        for (const ChangePart& part : group) parts.push_back(&part);
        auto ordered = parts;
        std::ranges::stable_sort(ordered, {}, [](const ChangePart* part) {
            return part->piece ? part->piece->target : first_of(*part);
        });
        append_all(ordered, has_before, into);
        if (is_ascending(into)) return;
        // Pieces that lie between each other, or another order: by the long way.
        append_all(parts, has_before, into);
        sort(into, has_before);
    }

    void append_all(const std::vector<const ChangePart*>& parts, bool has_before,
                    Columns<T>& into) const {
        into.count = 0;
        for (const ChangePart* part : parts) {
            if (part->place_bytes == 4) {
                append<std::uint32_t>(*part, has_before, into);
            } else {
                append<std::int64_t>(*part, has_before, into);
            }
        }
    }

    static bool is_ascending(const Columns<T>& columns) {
        for (std::size_t i = 1; i < columns.count; ++i) {
            if (columns.offsets[i - 1] >= columns.offsets[i]) return false;
        }
        return true;
    }

    static std::int64_t first_of(const ChangePart& part) {
        return part.count == 0 ? 0 : part.places.as<const std::int64_t>()[0];
    }

    template <class Place>
    void append(const ChangePart& part, bool has_before, Columns<T>& into) const {
        const auto places = part.places.as<const Place>();
        const auto fresh = part.fresh.as<const T>();
        const auto before = part.before.as<const T>();
        std::size_t first = 0;
        std::size_t past = part.count;
        bool is_run = !part.piece;
        std::int64_t shift = 0;
        if (part.piece) {
            const auto place_of = [](Place place) { return static_cast<std::int64_t>(place); };
            const PieceMap& piece = *part.piece;
            first = static_cast<std::size_t>(
                std::ranges::lower_bound(places, piece.source, {}, place_of) - places.begin());
            past = static_cast<std::size_t>(
                std::ranges::lower_bound(places, piece.end(), {}, place_of) - places.begin());
            is_run = piece.is_run();
            shift = piece.target - piece.source;
        }
        std::size_t count = into.count;
        for (std::size_t i = first; i < past; ++i) {
            const auto place = static_cast<std::int64_t>(places[i]);
            const std::int64_t offset = is_run ? place + shift : part.piece->find(place);
            if (offset < 0 && part.piece) continue;
            into.offsets[count] = offset;
            into.fresh[count] = fresh[i];
            if (has_before) into.before[count] = before[i];
            ++count;
        }
        into.count = count;
    }

    /// Of an offset that is there twice, the last value counts, and the first of what was before.
    static void sort(Columns<T>& columns, bool has_before) {
        std::vector<std::size_t> order(columns.count);
        std::iota(order.begin(), order.end(), std::size_t{0});
        std::ranges::stable_sort(order, {}, [&](std::size_t i) { return columns.offsets[i]; });
        OwnColumns<T> own(columns.count);
        Columns<T> sorted = own.columns();
        for (const std::size_t i : order) {
            const bool again =
                sorted.count != 0 && sorted.offsets[sorted.count - 1] == columns.offsets[i];
            const std::size_t at = again ? sorted.count - 1 : sorted.count;
            sorted.offsets[at] = columns.offsets[i];
            sorted.fresh[at] = columns.fresh[i];
            if (has_before && !again) sorted.before[at] = columns.before[i];
            sorted.count = at + 1;
        }
        std::copy_n(sorted.offsets, sorted.count, columns.offsets);
        std::copy_n(sorted.fresh, sorted.count, columns.fresh);
        if (has_before) std::copy_n(sorted.before, sorted.count, columns.before);
        columns.count = sorted.count;
    }

    bool is_inside(const Columns<T>& step) {
        job_.inside = step.count == 0 ||
                      (step.offsets[0] >= 0 &&
                       static_cast<std::uint64_t>(step.offsets[step.count - 1]) < job_.elements);
        return job_.inside;
    }

    /// What is in memory, held to what should be.
    void take_before(Columns<T>& step, bool has_before) {
        if (memory_.empty()) return;
        std::size_t differing = 0;
        for (std::size_t i = 0; i < step.count; ++i) {
            if (i + kAhead < step.count) __builtin_prefetch(&memory_[at(step.offsets[i + kAhead])]);
            const T now = memory_[at(step.offsets[i])];
            differing += has_before && step.before[i] != now ? 1 : 0;
            step.before[i] = now;
        }
        job_.differing += differing;
    }

    /// What was done before, and a step from there.
    void merge(const Columns<T>& done, const Columns<T>& step, bool has_before, Columns<T>& into) {
        std::size_t i = 0;
        std::size_t count = 0;
        for (std::size_t j = 0; j < step.count; ++j) {
            if (!memory_.empty() && j + kAhead < step.count) {
                __builtin_prefetch(&memory_[at(step.offsets[j + kAhead])]);
            }
            for (; i < done.count && done.offsets[i] < step.offsets[j]; ++i, ++count) {
                into.offsets[count] = done.offsets[i];
                into.fresh[count] = done.fresh[i];
                into.before[count] = done.before[i];
            }
            const bool both = i < done.count && done.offsets[i] == step.offsets[j];
            T before = has_before ? step.before[j] : T{};
            if (both || !memory_.empty()) {
                const T now = both ? done.fresh[i] : memory_[at(step.offsets[j])];
                job_.differing += has_before && before != now ? 1 : 0;
                before = both ? done.before[i] : now;
            }
            into.offsets[count] = step.offsets[j];
            into.fresh[count] = step.fresh[j];
            into.before[count] = before;
            ++count;
            i += both ? 1 : 0;
        }
        std::copy(done.offsets + i, done.offsets + done.count, into.offsets + count);
        std::copy(done.fresh + i, done.fresh + done.count, into.fresh + count);
        std::copy(done.before + i, done.before + done.count, into.before + count);
        into.count = count + done.count - i;
    }

    static std::size_t at(std::int64_t offset) { return static_cast<std::size_t>(offset); }

    TargetJob& job_;
    std::span<const T> memory_;
};

nb::list stage_changes(nb::iterable entries) {
    std::deque<TargetJob> jobs;
    for (const nb::handle entry : entries) jobs.emplace_back(entry);
    {
        const Unlocked unlocked;
        std::vector<TargetJob*> order;
        for (TargetJob& job : jobs) order.push_back(&job);
        std::ranges::sort(order, std::greater<>{}, &TargetJob::most);
        for_each_job(order.size(), [&](std::size_t i) {
            with_width(order[i]->width, [&]<class T>(T) { TargetRun<T>(*order[i]).run(); });
        });
    }
    nb::list done;
    for (const TargetJob& job : jobs) {
        if (!job.inside) raise(Error{ErrorKind::kInvalid, "a plan led out of its target"});
        done.append(nb::make_tuple(job.count, job.differing, job.knows_before));
    }
    return done;
}

}  // namespace

void bind_staging(nb::module_& module) {
    module.def(
        "stage_changes", &stage_changes, "targets"_a,
        nb::sig("def stage_changes(targets: Iterable[object]) -> list[tuple[int, int, bool]]"),
        "Each target is (width, elements, memory, base, groups, room): base and room are (offsets, "
        "new bits, old bits), a group is what one move changes, [(piece, places, new bits, old "
        "bits), …]. Fills the room with all changes, ascending; answers (how many, how many do not "
        "find what they should change, whether all said what that is).");
}

}  // namespace wisp::python
