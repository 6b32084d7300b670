// An answer that is not the one hoped for, as an Error named by its cure.
#pragma once

#include <string>

#include "store/s3/s3_settings.hpp"
#include "store/s3/s3_xml.hpp"
#include "web/http_client.hpp"
#include "wisp/result.hpp"

namespace wisp {

/// `what` is what was tried, as in "write 'commits/7'".
Error s3_error(const S3Settings& settings, const std::string& what, const HttpResponse& response);

/// The same for an <Error> that came in an answer of status 200.
Error s3_error(const S3Settings& settings, const std::string& what, const HttpResponse& response,
               const S3Problem& problem);

}  // namespace wisp
