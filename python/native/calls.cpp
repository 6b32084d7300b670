#include "calls.hpp"

#include <fmt/format.h>

#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <thread>

#include "wisp/printable.hpp"
#include "wisp/stop.hpp"

namespace wisp::python {
namespace {

constexpr std::size_t kKeptExceptions = 8;
constexpr std::size_t kShownCharacters = 300;
constexpr std::chrono::milliseconds kSignalInterval(50);

/// An exception on its way through the library, found again by the text of its error. Guarded by
/// the interpreter lock.
struct Kept {
    std::string text;
    nb::object exception;
};

std::deque<Kept>& kept_exceptions() {
    // Never freed: the interpreter may be gone when static objects are destroyed.
    static auto* const kept = new std::deque<Kept>();
    return *kept;
}

nb::object errors_module() {
    return nb::module_::import_("wisp.errors");
}

bool on_main_thread() {
    const nb::object threading = nb::module_::import_("threading");
    return threading.attr("get_ident")().equal(threading.attr("main_thread")().attr("ident"));
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
    auto& kept = kept_exceptions();
    for (auto it = kept.rbegin(); it != kept.rend(); ++it) {
        if (error.text.find(it->text) == std::string::npos) continue;
        const nb::object exception = it->exception;
        kept.erase(std::next(it).base());
        PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(exception.ptr())), exception.ptr());
        throw nb::python_error();
    }
    const std::string_view kind = name_of(error.kind);
    const nb::object exception = errors_module().attr("exception_of")(
        nb::str(kind.data(), kind.size()), nb::str(error.text.data(), error.text.size()),
        error.retry_after_ms ? nb::object(nb::int_(*error.retry_after_ms)) : nb::none());
    PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(exception.ptr())), exception.ptr());
    throw nb::python_error();
}

Error keep_exception(nb::python_error& raised, std::string_view during) {
    const nb::object exception = nb::borrow(raised.value());
    const auto kind = nb::cast<std::string>(errors_module().attr("kind_of")(exception));
    static std::uint64_t count = 0;
    std::string text = printable(text_of(exception)).substr(0, kShownCharacters);
    text =
        fmt::format("{} raised {} (exception {}): {}", during,
                    text_of(nb::handle(Py_TYPE(exception.ptr())).attr("__name__")), ++count, text);
    auto& kept = kept_exceptions();
    kept.push_back({text, exception});
    if (kept.size() > kKeptExceptions) kept.pop_front();
    return Error{kind_named(kind), std::move(text)};
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
