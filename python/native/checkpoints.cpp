#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "arrays.hpp"
#include "bindings.hpp"
#include "calls.hpp"
#include "wisp/checkpoint.hpp"

namespace wisp::python {

void bind_checkpoints(nb::module_& module) {
    nb::class_<Checkpoint, Weights>(module, "Checkpoint", "A checkpoint on disk, mapped.")
        .def_static(
            "open",
            [](const std::filesystem::path& path) {
                return long_call([&] { return Checkpoint::open(path); });
            },
            nb::arg("path"))
        .def_prop_ro("metadata", &Checkpoint::metadata);
    module.def(
        "digest_of",
        [](const Weights& weights, unsigned threads) {
            return to_text(long_call([&] { return digest_of(weights, threads); }));
        },
        nb::arg("weights"), nb::arg("threads") = 0, "The state digest, 32 hexadecimal digits.");
}

}  // namespace wisp::python
