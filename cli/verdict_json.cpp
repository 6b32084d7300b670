#include "verdict_json.hpp"

#include <nlohmann/json.hpp>

namespace wisp::cli {

nlohmann::ordered_json verdict_json(const RunVerdict& verdict) {
    nlohmann::ordered_json json = {{"severity", name_of(verdict.severity)},
                                   {"text", verdict.text},
                                   {"concerns", nlohmann::ordered_json::array()}};
    for (const Concern& concern : verdict.concerns) {
        json["concerns"].push_back({{"severity", name_of(concern.severity)},
                                    {"cause", name_of(concern.cause)},
                                    {"text", concern.text}});
    }
    return json;
}

}  // namespace wisp::cli
