// What a stage has worked out, written to an engine's memory: all that a pause is made of, on CPUs.
#include <deque>

#include "bindings.hpp"
#include "element_memory.hpp"
#include "job_threads.hpp"

namespace wisp::python {
namespace {

using namespace nb::literals;

struct ScatterJob {
    std::size_t width;
    ElementBuffer memory;
    ElementBuffer offsets;
    ElementBuffer bits;

    explicit ScatterJob(nb::handle entry)
        : width(nb::cast<std::size_t>(entry[1])),
          memory(entry[0], true),
          offsets(entry[2], false),
          bits(entry[3], false) {
        if (bits.size() / width < offsets.size() / 8) {
            raise(Error{ErrorKind::kInvalid, "there are fewer elements than offsets"});
        }
    }
    std::size_t count() const { return offsets.size() / 8; }
};

/// False when an offset lies outside; it is passed over.
template <class T>
bool scatter(const ScatterJob& job, std::size_t first, std::size_t past) {
    const auto offsets = job.offsets.as<const std::int64_t>();
    const auto bits = job.bits.as<const T>();
    const auto memory = job.memory.as<T>();
    bool inside = true;
    for (std::size_t i = first; i < past; ++i) {
        if (i + kAhead < past) __builtin_prefetch(memory.data() + offsets[i + kAhead], 1);
        const auto place = static_cast<std::uint64_t>(offsets[i]);
        if (place < memory.size()) {
            memory[place] = bits[i];
        } else {
            inside = false;
        }
    }
    return inside;
}

void scatter_elements(nb::iterable entries) {
    constexpr std::size_t kUnit = 1U << 16;
    std::deque<ScatterJob> jobs;
    for (const nb::handle entry : entries) jobs.emplace_back(entry);
    std::atomic<bool> inside = true;
    {
        const Unlocked unlocked;
        const auto units = units_of(jobs, kUnit);
        for_each_job(units.size(), [&](std::size_t i) {
            const bool fits = with_width(units[i].job->width, [&]<class T>(T) {
                return scatter<T>(*units[i].job, units[i].first, units[i].past);
            });
            if (!fits) inside = false;
        });
    }
    if (!inside) raise(Error{ErrorKind::kInvalid, "an offset lies outside its target"});
}

}  // namespace

void bind_scattering(nb::module_& module) {
    module.def("scatter_elements", &scatter_elements, "targets"_a,
               nb::sig("def scatter_elements(targets: Iterable[object]) -> None"),
               "Writes the elements of (memory, width, offsets, bits) each; no offset twice.");
}

}  // namespace wisp::python
