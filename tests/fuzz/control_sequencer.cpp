// SPDX-License-Identifier: Apache-2.0
//
// The sequencer hears messages of relays. Whatever they say, it goes on or throws an Error.
#include "recordings.hpp"

namespace kolo::fuzz {

void run(std::string_view input) { hear<control::HearingSequencer>(control::recorded().of_sequencer, input); }

std::vector<std::string> seeds() { return pieces_of(control::recorded().of_sequencer); }

}  // namespace kolo::fuzz
