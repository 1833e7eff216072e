// SPDX-License-Identifier: Apache-2.0
//
// A leader's relay hears its children's messages, and the log. Whatever they say, it goes on or throws an Error.
#include "recordings.hpp"

namespace kolo::fuzz {

void run(std::string_view input) { hear<control::HearingRelay>(control::recorded().of_relay, input); }

std::vector<std::string> seeds() { return pieces_of(control::recorded().of_relay); }

}  // namespace kolo::fuzz
