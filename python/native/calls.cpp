#include "calls.hpp"

#include <fmt/format.h>

#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>

#include "wisp/control.hpp"
#include "wisp/result.hpp"

namespace wisp::python {
namespace {

constexpr std::size_t kShownCharacters = 300;
constexpr std::chrono::milliseconds kSignalInterval(50);

/// An exception on its way through the library. The thread that drops the error last may hold a
/// lock that a thread with the interpreter's waits for: the interpreter lets go of it when it has
/// time.
std::shared_ptr<const void> carried(nb::object exception) {
    const auto let_go = [](void* object) {
        Py_DECREF(static_cast<PyObject*>(object));
        return 0;
    };
    return {static_cast<void*>(exception.release().ptr()),
            [let_go](void* object) { (void)Py_AddPendingCall(let_go, object); }};
}

[[noreturn]] void throw_exception(nb::handle exception) {
    PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(exception.ptr())), exception.ptr());
    throw nb::python_error();
}

nb::object errors_module() {
    return nb::module_::import_("wisp.errors");
}

bool on_main_thread() {
    const nb::object threading = nb::module_::import_("threading");
    return threading.attr("get_ident")().equal(threading.attr("main_thread")().attr("ident"));
}

/// Of an exception, as wisp.errors says.
std::string kind_of(nb::handle exception) {
    try {
        return nb::cast<std::string>(errors_module().attr("kind_of")(exception));
    } catch (const nb::python_error&) {
        // The interpreter ends, and imports nothing any more. A last heartbeat may meet this.
        return std::string(name_of(ErrorKind::kUnavailable));
    }
}

std::string text_of(nb::handle object) {
    try {
        return nb::cast<std::string>(nb::str(object));
    } catch (const std::exception&) {
        return "(without text)";
    }
}

}  // namespace

ErrorKind kind_named(std::string_view name) {
    for (int kind = 0; kind <= static_cast<int>(ErrorKind::kInternal); ++kind) {
        if (name_of(static_cast<ErrorKind>(kind)) == name) return static_cast<ErrorKind>(kind);
    }
    return ErrorKind::kInternal;
}

void raise(const Error& error) {
    if (error.cause) {
        throw_exception(static_cast<PyObject*>(const_cast<void*>(error.cause.get())));
    }
    const std::string_view kind = name_of(error.kind);
    throw_exception(errors_module().attr("library_exception")(
        nb::str(kind.data(), kind.size()), nb::str(error.text.data(), error.text.size()),
        error.retry_after_ms ? nb::object(nb::int_(*error.retry_after_ms)) : nb::none()));
}

Error error_of(nb::python_error& raised, std::string_view during) {
    nb::object exception = nb::borrow(raised.value());
    const std::string kind = kind_of(exception);
    std::string text = fmt::format("{} raised {}: {}", during,
                                   text_of(nb::handle(Py_TYPE(exception.ptr())).attr("__name__")),
                                   printable(text_of(exception)).substr(0, kShownCharacters));
    return Error{kind_named(kind), std::move(text), std::nullopt, carried(std::move(exception))};
}

void run_unlocked(const std::function<void()>& work) {
    if (!on_main_thread()) {
        const Unlocked unlocked;
        work();
        return;
    }
    std::mutex mutex;
    std::condition_variable ended;
    bool done = false;
    std::exception_ptr thrown;
    std::exception_ptr interrupted;
    std::stop_source stop;
    {
        const Unlocked unlocked;
        std::jthread worker([&] {
            const StopScope scope(stop.get_token());
            try {
                work();
            } catch (const std::exception&) {
                thrown = std::current_exception();
            }
            const std::scoped_lock lock(mutex);
            done = true;
            ended.notify_all();
        });
        std::unique_lock lock(mutex);
        while (!ended.wait_for(lock, kSignalInterval, [&] { return done; })) {
            if (interrupted) continue;
            lock.unlock();
            {
                nb::gil_scoped_acquire locked;
                if (PyErr_CheckSignals() != 0) {
                    interrupted = std::make_exception_ptr(nb::python_error());
                    stop.request_stop();
                }
            }
            lock.lock();
        }
    }
    if (interrupted) std::rethrow_exception(interrupted);
    if (thrown) std::rethrow_exception(thrown);
}

}  // namespace wisp::python
