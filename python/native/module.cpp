#include <nanobind/stl/string.h>

#include "bindings.hpp"
#include "calls.hpp"
#include "wisp/delta.hpp"

NB_MODULE(_native, module) {
    module.doc() = "The C++ side of wisp. Use the package `wisp`; names here may change.";
    module.attr("version") = WISP_VERSION;
    wisp::python::value_of(wisp::check_kernel());
    module.def("kernel_name", &wisp::kernel_name, "The vector kernel in use, e.g. \"AVX2\".");
    wisp::python::bind_arrays(module);
    wisp::python::bind_checkpoints(module);
    wisp::python::bind_stores(module);
    wisp::python::bind_runs(module);
    wisp::python::bind_sharding(module);
    wisp::python::bind_maintenance(module);
    wisp::python::bind_decoding(module);
    wisp::python::bind_gathering(module);
    wisp::python::bind_staging(module);
    wisp::python::bind_scattering(module);
    wisp::python::bind_told_move(module);
    wisp::python::bind_relay(module);
    wisp::python::bind_following(module);
    wisp::python::bind_publishing(module);
    wisp::python::bind_trl_layout(module);
    wisp::python::bind_engines(module);
    wisp::python::bind_folders(module);
}
