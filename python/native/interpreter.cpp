#include "interpreter.hpp"

#include <cxxabi.h>
#include <unistd.h>

namespace wisp::python {

void wait_for_the_end() {
    for (;;) ::pause();
}

PyGILState_STATE enter_python() {
    try {
        return PyGILState_Ensure();
    } catch (const abi::__forced_unwind&) {
        wait_for_the_end();
    }
}

void leave_python(PyGILState_STATE state) {
    PyGILState_Release(state);
}

Unlocked::~Unlocked() {
    try {
        PyEval_RestoreThread(state_);
    } catch (const abi::__forced_unwind&) {
        wait_for_the_end();
    }
}

}  // namespace wisp::python
