// A follower that holds no weights, and the Python code that knows who does.
#pragma once

#include <nanobind/nanobind.h>

#include "wisp/relay.hpp"

namespace wisp::python {

namespace nb = nanobind;

/// room([(tensor, words), …]) answers with writable memory, ask(state) fills it, asked() tells by
/// whom; adopt(folder, schema, step, seq, state) and move(entries, step, seq, state, moved by)
/// are told.
/// hand_over(files, step, seq, state) answers whether ranks decode these deltas themselves.
/// held() answers with HeldSlices, or None if everything is held; held_of(schema) the same of a
/// state of these tensors that is about to be fetched.
struct RelayCalls {
    nb::object room, ask, asked, adopt, move, held, held_of, hand_over;
};

/// The result keeps what it calls.
RelayReplicaOptions relay_options(const RelayCalls& calls);

}  // namespace wisp::python
