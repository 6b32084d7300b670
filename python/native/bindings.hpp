// What the extension module `wisp._native` is made of: one function per subject.
#pragma once

#include <nanobind/nanobind.h>

namespace wisp::python {

namespace nb = nanobind;

void bind_arrays(nb::module_& module);
void bind_checkpoints(nb::module_& module);
void bind_stores(nb::module_& module);
void bind_runs(nb::module_& module);
void bind_sharding(nb::module_& module);
void bind_trl_layout(nb::module_& module);
void bind_maintenance(nb::module_& module);
void bind_following(nb::module_& module);
void bind_told_move(nb::module_& module);
void bind_staging(nb::module_& module);
void bind_scattering(nb::module_& module);
void bind_decoding(nb::module_& module);
void bind_gathering(nb::module_& module);
void bind_relay(nb::module_& module);
void bind_follow_reports(nb::module_& module);
void bind_publishing(nb::module_& module);
void bind_engines(nb::module_& module);
void bind_folders(nb::module_& module);

}  // namespace wisp::python
