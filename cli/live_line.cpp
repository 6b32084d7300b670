#include "live_line.hpp"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <map>
#include <mutex>
#include <optional>
#include <thread>

#include "diagnostics.hpp"

namespace wisp::cli {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kFrame = std::chrono::milliseconds(100);
constexpr auto kFlicker = std::chrono::milliseconds(500);
constexpr auto kLongWait = std::chrono::seconds(1);

double seconds_since(Clock::time_point then) {
    return std::chrono::duration<double>(Clock::now() - then).count();
}

/// ", 210 MB/s, 12 s left", once there is something to tell it by.
std::string pace_text(std::uint64_t done, std::uint64_t left, double seconds) {
    constexpr double kTelling = 0.5;
    if (seconds < kTelling || done == 0) return "";
    const double rate = static_cast<double>(done) / seconds;
    std::string text = fmt::format(", {}/s", human_bytes(static_cast<std::uint64_t>(rate)));
    if (left == 0) return text;
    const double wait = static_cast<double>(left) / rate;
    return text + (wait < 120 ? fmt::format(", {:.0f} s left", wait)
                              : fmt::format(", {:.0f} min left", wait / 60));
}

std::size_t terminal_columns() {
    winsize size{};
    const bool known = ::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
    return known ? size.ws_col : 80;
}

/// A line that wraps cannot be taken away again.
std::string cut_to(std::string text, std::size_t columns) {
    std::size_t shown = 0;
    for (std::size_t i = 0; i < text.size(); ++i) {
        const bool begins = (static_cast<unsigned char>(text[i]) & 0xC0) != 0x80;
        if (begins && shown++ == columns) return text.substr(0, i);
    }
    return text;
}

struct Bar {
    std::string phase;
    Clock::time_point begun;
    std::uint64_t begun_at = 0;  // bytes
    Clock::time_point moved;
    std::uint64_t done = 0;
    std::uint64_t total = 0;
};

struct Wait {
    std::string what;
    Clock::time_point begun;
};

/// Never freed: its thread may outlive main().
class LiveLine {
  public:
    static LiveLine& only() {
        static auto* const line = new LiveLine();
        return *line;
    }

    void progress(std::string_view phase, std::uint64_t done, std::uint64_t total) {
        const std::scoped_lock lock(mutex_);
        const auto now = Clock::now();
        if (!bar_ || bar_->phase != phase || done < bar_->done) {
            bar_ = Bar{std::string(phase), now, done, now, done, total};
        } else if (done != bar_->done) {
            bar_->moved = now;
        }
        bar_->done = done;
        bar_->total = total;
        text_.clear();
        wake();
    }

    void text(std::string text) {
        const std::scoped_lock lock(mutex_);
        bar_.reset();
        text_ = std::move(text);
        wake();
    }

    std::uint64_t begin_wait(std::string what) {
        const std::scoped_lock lock(mutex_);
        newest_ = {what, Clock::now()};
        waits_.emplace(++last_wait_, Wait{std::move(what), Clock::now()});
        wake();
        return last_wait_;
    }

    void end_wait(std::uint64_t number) {
        const std::scoped_lock lock(mutex_);
        waits_.erase(number);
    }

    void clear() {
        const std::scoped_lock lock(mutex_);
        bar_.reset();
        text_.clear();
        begun_.reset();
        erase();
    }

  private:
    void wake() {
        if (!begun_) begun_ = Clock::now();
        if (std::exchange(started_, true)) return;
        std::thread([this] {
            for (;;) {
                std::this_thread::sleep_for(kFrame);
                draw();
            }
        }).detach();
    }

    void draw() {
        const std::scoped_lock lock(mutex_);
        const std::string line = begun_ && Clock::now() - *begun_ >= kFlicker ? words() : "";
        if (line.empty()) return erase();
        fmt::print(stderr, "\r\033[K{}", cut_to(line, terminal_columns() - 1));
        std::fflush(stderr);
        shown_ = true;
    }

    void erase() {
        if (!std::exchange(shown_, false)) return;
        fmt::print(stderr, "\r\033[K");
        std::fflush(stderr);
    }

    std::string words() const {
        const std::string waiting = wait_words();
        const bool is_stuck = bar_ && Clock::now() - bar_->moved >= kLongWait;
        const bool is_done = bar_ && bar_->done >= bar_->total;
        if (!waiting.empty() && (!bar_ || (is_stuck && is_done))) {
            return text_.empty() ? waiting : text_ + "; " + waiting;
        }
        if (bar_) return bar_words(*bar_);
        return text_.empty() ? work_words() : text_;
    }

    /// Many quick requests, one after the other.
    std::string work_words() const {
        if (last_wait_ == 0 || Clock::now() - newest_.begun > kLongWait) return "";
        return fmt::format("{}: {}", counted(last_wait_, "request"), newest_.what);
    }

    static std::string bar_words(const Bar& bar) {
        const double share =
            bar.total == 0 ? 1.0 : static_cast<double>(bar.done) / static_cast<double>(bar.total);
        constexpr std::size_t kWords = 66;
        const std::size_t columns = terminal_columns();
        const auto width = static_cast<unsigned>(
            std::min<std::size_t>(columns > kWords ? columns - kWords : 0, 30));
        return fmt::format(
            "{:8} {}{}{:3.0f} %  {} of {}{}", bar.phase, cli::bar(share, width),
            width == 0 ? "" : " ", 100 * share, human_bytes(bar.done), human_bytes(bar.total),
            pace_text(bar.done - bar.begun_at, bar.total - std::min(bar.done, bar.total),
                      seconds_since(bar.begun)));
    }

    std::string wait_words() const {
        if (waits_.empty()) return "";
        const Wait& oldest = waits_.begin()->second;
        if (Clock::now() - oldest.begun < kLongWait) return "";
        const std::size_t others = waits_.size() - 1;
        return fmt::format("waiting for {}{}, {:.0f} s", oldest.what,
                           others == 0 ? "" : fmt::format(" and {} more", others),
                           seconds_since(oldest.begun));
    }

    std::mutex mutex_;
    std::optional<Bar> bar_;
    std::string text_;
    std::map<std::uint64_t, Wait> waits_;  // the oldest first
    std::uint64_t last_wait_ = 0;
    Wait newest_;
    std::optional<Clock::time_point> begun_;
    bool shown_ = false;
    bool started_ = false;
};

}  // namespace

bool draws_live_line(const Common& common) {
    const char* const terminal = std::getenv("TERM");
    const bool dumb = terminal != nullptr && std::string_view(terminal) == "dumb";
    return !common.quiet && !dumb && !logs_json() && ::isatty(STDERR_FILENO) == 1;
}

void draw_progress(std::string_view phase, std::uint64_t done, std::uint64_t total) {
    LiveLine::only().progress(phase, done, total);
}

void draw_text(std::string text) {
    LiveLine::only().text(std::move(text));
}

LiveWait::LiveWait(const Common& common, std::string what) {
    if (draws_live_line(common)) number_ = LiveLine::only().begin_wait(std::move(what));
}

LiveWait::~LiveWait() {
    if (number_ != 0) LiveLine::only().end_wait(number_);
}

void clear_live_line() {
    LiveLine::only().clear();
}

}  // namespace wisp::cli
