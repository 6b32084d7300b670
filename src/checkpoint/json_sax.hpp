// A strict JSON reader that refuses everything its subclass does not expect, as it is read.
//
// Nothing is built for input that will be rejected, so nesting and size bombs cost nothing.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <utility>

namespace wisp {

class StrictSax : public nlohmann::json::json_sax_t {
  public:
    const std::string& problem() const { return problem_; }

    bool null() override { return refuse("null where it is not allowed"); }
    bool boolean(bool) override { return refuse("a boolean where it is not allowed"); }
    bool number_integer(number_integer_t) override { return refuse("a negative number"); }
    bool number_unsigned(number_unsigned_t) override { return refuse("an unexpected number"); }
    bool number_float(number_float_t, const string_t&) override {
        return refuse("a number that is not a whole 64-bit one");
    }
    bool string(string_t&) override { return refuse("an unexpected string"); }
    bool binary(binary_t&) override { return refuse("binary data"); }
    bool start_array(std::size_t) override { return refuse("an unexpected array"); }
    bool end_array() override { return true; }
    bool parse_error(std::size_t position, const std::string&,
                     const nlohmann::json::exception&) override {
        return refuse("not valid JSON at byte " + std::to_string(position));
    }

  protected:
    bool refuse(std::string why) {
        if (problem_.empty()) problem_ = std::move(why);
        return false;
    }

  private:
    std::string problem_;
};

}  // namespace wisp
