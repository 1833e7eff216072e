// SPDX-License-Identifier: Apache-2.0
//
// A rank hears the log, while its program submits. Whatever they say, it goes on or throws an Error.
#include "recordings.hpp"

namespace kolo::fuzz {

void run(std::string_view input) { hear<control::HearingParticipant>(control::recorded().of_participant, input); }

std::vector<std::string> seeds() { return pieces_of(control::recorded().of_participant); }

}  // namespace kolo::fuzz
