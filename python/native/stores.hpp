// Stores written in Python, and where a run lies.
//
// A Python store is an object with put, create, read, head, remove and list: see wisp/stores.py. It
// is called with the interpreter lock held, from any thread, and kept alive as long as it is used.
#pragma once

#include <nanobind/nanobind.h>

#include <memory>

#include "wisp/store.hpp"

namespace wisp::python {

namespace nb = nanobind;

/// Not retried; see with_retries().
std::shared_ptr<Store> store_of(nb::object python_store);

}  // namespace wisp::python
