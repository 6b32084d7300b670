#include "wisp/checkpoint.hpp"

#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "arrays.hpp"
#include "bindings.hpp"
#include "calls.hpp"
#include "reports.hpp"
#include "runs.hpp"
#include "wisp/delta.hpp"
#include "wisp/inspect.hpp"

namespace wisp::python {

namespace fs = std::filesystem;
using namespace nb::literals;

Codec codec_named(const std::string& name) {
    if (const auto codec = parse_codec(name)) return *codec;
    raise(Error{ErrorKind::kInvalid,
                "codec '" + name + "' is unknown; take compact, swift, plain or gap"});
}

namespace {

DiffOptions diff_options(const std::string& codec, std::optional<std::uint64_t> step,
                         unsigned threads) {
    DiffOptions options;
    options.codec = codec_named(codec);
    options.step = step;
    options.threads = threads;
    return options;
}

void bind_write_reports(nb::module_& module) {
    nb::class_<DiffReport>(module, "DiffReport", "What a delta holds.")
        .def_ro("step", &DiffReport::step)
        .def_ro("total_elements", &DiffReport::total_elements)
        .def_ro("changed_elements", &DiffReport::changed_elements)
        .def_ro("changed_tensors", &DiffReport::changed_tensors)
        .def_ro("checkpoint_bytes", &DiffReport::checkpoint_bytes)
        .def_ro("payload_bytes", &DiffReport::payload_bytes)
        .def_ro("file_bytes", &DiffReport::file_bytes)
        .def_prop_ro("base", digest_text(&DiffReport::base))
        .def_prop_ro("result", digest_text(&DiffReport::result));
    nb::class_<ApplyReport>(module, "ApplyReport", "What apply() did and proved.")
        .def_ro("deltas_applied", &ApplyReport::deltas_applied)
        .def_ro("deltas_skipped", &ApplyReport::deltas_skipped, "The base was already past them.")
        .def_ro("changed_elements", &ApplyReport::changed_elements)
        .def_ro("base_proven", &ApplyReport::base_proven)
        .def_ro("result_proven", &ApplyReport::result_proven)
        .def_prop_ro("result", digest_text(&ApplyReport::result));
}

void bind_look_reports(nb::module_& module) {
    nb::class_<TensorReport>(module, "TensorReport", "One tensor of a file.")
        .def_prop_ro("name", [](const TensorReport& self) { return self.tensor.name; })
        .def_prop_ro(
            "dtype",
            [](const TensorReport& self) { return std::string(traits_of(self.tensor.dtype).name); })
        .def_prop_ro(
            "shape",
            [](const TensorReport& self) {
                nb::list shape;
                for (const std::uint64_t size : self.tensor.shape) shape.append(size);
                return nb::tuple(shape);
            },
            nb::sig("def shape(self, /) -> tuple[int, ...]"))
        .def_ro("element_count", &TensorReport::element_count)
        .def_ro("changed_elements", &TensorReport::changed_elements)
        .def_ro("stored_bytes", &TensorReport::stored_bytes)
        .def_prop_ro(
            "block_kinds",
            [](const TensorReport& self) {
                std::map<std::string, std::uint64_t> kinds;
                for (const auto& [kind, count] : self.block_kinds) {
                    kinds.emplace(name_of(kind), count);
                }
                return kinds;
            },
            "How many blocks are stored in which way.");
    nb::class_<FileReport>(module, "FileReport", "What a delta or a checkpoint file holds.")
        .def_prop_ro(
            "kind", [](const FileReport& self) { return self.is_delta() ? "delta" : "checkpoint"; },
            "\"delta\" or \"checkpoint\".")
        .def_prop_ro(
            "codec",
            [](const FileReport& self) {
                return std::string(self.codec ? name_of(*self.codec) : "");
            },
            "Of a delta; else empty.")
        .def_ro("foreign", &FileReport::foreign, "A delta without wisp's digests and seal.")
        .def_ro("file_bytes", &FileReport::file_bytes)
        .def_ro("total_elements", &FileReport::total_elements)
        .def_ro("changed_elements", &FileReport::changed_elements)
        .def_ro("payload_bytes", &FileReport::payload_bytes)
        .def_ro("step", &FileReport::step)
        .def_ro("metadata", &FileReport::metadata)
        .def_ro("tensors", &FileReport::tensors)
        .def_prop_ro("base", digest_text(&FileReport::base))
        .def_prop_ro("result", digest_text(&FileReport::result))
        .def_ro("schema_digest", &FileReport::schema_digest);
    nb::class_<VerifyReport>(module, "VerifyReport", "What verify() proved.")
        .def_ro("file", &VerifyReport::file)
        .def_ro("decoded", &VerifyReport::decoded)
        .def_ro("base_matches", &VerifyReport::base_matches)
        .def_ro("result_matches", &VerifyReport::result_matches)
        .def_prop_ro("state", digest_text(&VerifyReport::state));
}

void bind_writing(nb::module_& module) {
    module.def(
        "diff",
        [](const Weights& old_state, const Weights& new_state, const fs::path& delta,
           const std::string& codec, std::optional<std::uint64_t> step, unsigned threads) {
            const DiffOptions options = diff_options(codec, step, threads);
            const auto* old_files = dynamic_cast<const Checkpoint*>(&old_state);
            const auto* new_files = dynamic_cast<const Checkpoint*>(&new_state);
            return long_call([&] {
                // Between files, the output must not be one of them.
                return old_files != nullptr && new_files != nullptr
                           ? diff(*old_files, *new_files, delta, options)
                           : diff(old_state, new_state, delta, options);
            });
        },
        "old"_a, "new"_a, "delta"_a, "codec"_a = "compact", "step"_a = nb::none(), "threads"_a = 0);
    module.def(
        "merge",
        [](const Checkpoint& base, const std::vector<fs::path>& deltas, const fs::path& merged,
           const std::string& codec, std::optional<std::uint64_t> step, unsigned threads) {
            const DiffOptions options = diff_options(codec, step, threads);
            return long_call([&] { return merge(base, deltas, merged, options); });
        },
        "base"_a, "deltas"_a, "merged"_a, "codec"_a = "compact", "step"_a = nb::none(),
        "threads"_a = 0);
    module.def(
        "apply",
        [](const fs::path& base, const std::vector<fs::path>& deltas,
           const std::optional<fs::path>& output, bool quick, unsigned threads) {
            ApplyOptions options;
            options.threads = threads;
            options.touched_only = quick;
            return long_call([&] {
                return output ? apply(base, deltas, *output, options)
                              : apply_in_place(base, deltas, options);
            });
        },
        "base"_a, "deltas"_a, "output"_a = nb::none(), "quick"_a = false, "threads"_a = 0);
    module.def(
        "apply_in_memory",
        [](HostWeights& weights, const std::vector<fs::path>& deltas, unsigned threads) {
            if (!weights.is_writable()) {
                raise(Error{ErrorKind::kInvalid, "weights to apply to must be writable"});
            }
            ApplyOptions options;
            options.threads = threads;
            return long_call([&] { return apply_in_memory(weights, deltas, options); });
        },
        "weights"_a, "deltas"_a, "threads"_a = 0);
}

}  // namespace

void bind_checkpoints(nb::module_& module) {
    bind_write_reports(module);
    bind_look_reports(module);
    nb::class_<Checkpoint, Weights>(module, "Checkpoint", "A checkpoint on disk, mapped.")
        .def_static(
            "open",
            [](const fs::path& path) { return long_call([&] { return Checkpoint::open(path); }); },
            "path"_a)
        .def_prop_ro("metadata", &Checkpoint::metadata);
    bind_writing(module);
    module.def(
        "inspect", [](const fs::path& file) { return long_call([&] { return inspect(file); }); },
        "file"_a);
    module.def(
        "verify",
        [](const fs::path& file, const std::optional<fs::path>& base, unsigned threads) {
            return long_call([&] { return verify(file, base, threads); });
        },
        "file"_a, "base"_a = nb::none(), "threads"_a = 0);
    module.def(
        "digest_of",
        [](const Weights& weights, unsigned threads) {
            return to_text(long_call([&] { return digest_of(weights, threads); }));
        },
        "weights"_a, "threads"_a = 0, "The state digest, 32 hexadecimal digits.");
}

}  // namespace wisp::python
