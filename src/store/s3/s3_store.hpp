// A bucket of any S3-compatible store, behind the Store interface.
//
// Never repeats a request except to correct the clock, the keys, the region, or a 409 of create():
// retrying is another wrapper's. Large puts are multipart; create() never is, since some stores
// ignore the condition there. Thread-safe.
#pragma once

#include <memory>
#include <string>

#include "store/s3/s3_settings.hpp"
#include "web/http_client.hpp"
#include "wisp/control.hpp"
#include "wisp/hub.hpp"
#include "wisp/result.hpp"
#include "wisp/store.hpp"

namespace wisp {

/// With the settings of the environment; nothing is contacted yet.
Result<std::shared_ptr<Store>> open_s3_store(const std::string& bucket);

/// Through the S3 gateway of the Hugging Face Hub; kDenied, naming what is missing, when the
/// environment does not lead there.
Result<std::shared_ptr<Store>> open_hub_store(const HubAddress& address);

/// The same with everything given, for tests; without `http`, with a client of its own.
std::shared_ptr<Store> make_s3_store(const S3Settings& settings, const Environment& environment,
                                     std::shared_ptr<Clock> clock,
                                     std::shared_ptr<HttpClient> http = nullptr);

}  // namespace wisp
