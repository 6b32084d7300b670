// wisp: weights in sparse patches. Read the headers in this order.
#pragma once

#include "wisp/result.hpp"
#include "wisp/dtype.hpp"
#include "wisp/schema.hpp"
#include "wisp/digest.hpp"
#include "wisp/change_set.hpp"
#include "wisp/progress.hpp"
#include "wisp/stop.hpp"
#include "wisp/text.hpp"
#include "wisp/checkpoint.hpp"
#include "wisp/delta.hpp"
