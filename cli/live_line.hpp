// The one line of a terminal's stderr that says what is going on: a bar with rate and time left, or
// what is being waited for.
//
// A thread of its own draws it, so that it stays true while one request takes long, and only from
// half a second on, so that what is quick does not flicker. Of the process, as its stderr is; any
// thread may call. Without a terminal, under -q and with --log-format json nothing is drawn.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "output.hpp"

namespace wisp::cli {

bool draws_live_line(const Common& common);

/// `done` of `total` bytes of a phase of the work.
void draw_progress(std::string_view phase, std::uint64_t done, std::uint64_t total);
/// Another text instead of a bar.
void draw_text(std::string text);

/// While it stands, somebody waits for this: told once nothing else is to be told.
class LiveWait {
  public:
    LiveWait(const Common& common, std::string what);
    LiveWait(const LiveWait&) = delete;
    LiveWait& operator=(const LiveWait&) = delete;
    ~LiveWait();

  private:
    std::uint64_t number_ = 0;  // 0: nothing is drawn
};

/// Takes the line away, before anything else is printed. It comes back with the next news.
void clear_live_line();

}  // namespace wisp::cli
