// Which submitted steps are committed, and which are not and why.
//
// Steps are counted in the order of their submission, since their numbers go back at a rewind. A
// committed step contains all that were submitted before it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

#include "wisp/result.hpp"

namespace wisp {

struct StepTicket {
    std::uint64_t number = 0;  // 0: nothing was submitted yet
    std::uint64_t step = 0;
};

class StepLedger {
  public:
    struct Missed {
        StepTicket ticket;
        Error why;
    };

    StepTicket submit(std::uint64_t step) {
        submitted_ = {submitted_.number + 1, step};
        return submitted_;
    }
    void commit(const StepTicket& ticket) {
        committed_ = std::max(committed_, ticket.number);
        if (missed_ && missed_->ticket.number <= committed_) missed_.reset();
    }
    /// Nobody works on it any more, and it is in no commit.
    void miss(const StepTicket& ticket, const Error& why) {
        if (ticket.number <= committed_) return;
        if (!missed_ || missed_->ticket.number <= ticket.number) missed_.emplace(ticket, why);
    }

    const StepTicket& submitted() const { return submitted_; }
    bool has_committed(const StepTicket& ticket) const { return ticket.number <= committed_; }
    const std::optional<Missed>& missed() const { return missed_; }

  private:
    StepTicket submitted_;
    std::uint64_t committed_ = 0;
    std::optional<Missed> missed_;
};

}  // namespace wisp
