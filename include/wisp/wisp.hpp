// wisp: weights in sparse patches. Read the headers in this order.
#pragma once

#include "wisp/change_set.hpp"
#include "wisp/checkpoint.hpp"
#include "wisp/clock.hpp"
#include "wisp/delta.hpp"
#include "wisp/digest.hpp"
#include "wisp/dtype.hpp"
#include "wisp/inspect.hpp"
#include "wisp/printable.hpp"
#include "wisp/progress.hpp"
#include "wisp/result.hpp"
#include "wisp/schema.hpp"
#include "wisp/signing.hpp"
#include "wisp/stop.hpp"
#include "wisp/store.hpp"
#include "wisp/trust.hpp"
