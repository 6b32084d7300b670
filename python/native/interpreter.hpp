// Entering and leaving the Python interpreter, also while it is going away.
//
// A thread that asks for the interpreter's lock after the interpreter has begun to end is ended by
// it, by unwinding its stack. That must not pass through C++ that cannot be left in the middle:
// such a thread waits here for the end of the process instead, and does nothing any more.
#pragma once

#include <nanobind/nanobind.h>

namespace wisp::python {

namespace nb = nanobind;

/// Of a thread that has lost the interpreter for good.
[[noreturn]] void wait_for_the_end();

/// Takes the interpreter's lock, on any thread.
PyGILState_STATE enter_python();
void leave_python(PyGILState_STATE state);

/// Lets go of the interpreter's lock while it stands. As nb::gil_scoped_release, but for the end.
class Unlocked {
  public:
    Unlocked() : state_(PyEval_SaveThread()) {}
    ~Unlocked();
    Unlocked(const Unlocked&) = delete;
    Unlocked& operator=(const Unlocked&) = delete;

  private:
    PyThreadState* state_;
};

/// Holds the interpreter's lock while it stands, for calls that run no Python code of others.
class Locked {
  public:
    Locked() : state_(enter_python()) {}
    ~Locked() { leave_python(state_); }
    Locked(const Locked&) = delete;
    Locked& operator=(const Locked&) = delete;

  private:
    PyGILState_STATE state_;
};

}  // namespace wisp::python
