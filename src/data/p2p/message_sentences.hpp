// SPDX-License-Identifier: Apache-2.0
//
// What point to point says to people. Ranks are those of the message's process set.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/p2p/message.hpp"

namespace kolo::p2p {

/// "send of 10 elements of float32 to rank 1 with tag 7", "recv of up to 4 elements of int8 from any rank with any
/// tag"; of a group followed by " in the group of ranks 0 and 2".
std::string describe(const Message& message);

/// The message that a receive got is longer than its room, or of another type.
Status too_long(const Message& receive, int source, std::int32_t tag, std::uint64_t bytes);
Status other_type(const Message& receive, int source, std::int32_t tag, DType dtype);
/// The same as the sender hears of it.
Status too_long_for(const Message& send, std::uint64_t room);
Status other_type_there(const Message& send, DType dtype);
/// The other side will not go on. `because`: the rank whose leaving is the reason; -1: none. The message then ends as
/// those to that rank do (rank_lost).
Status given_up_there(const Message& message, int because = -1);
Status set_gone_there(const Message& send);
/// It was given up here.
Status cancelled(const Message& receive);
/// It has waited until `warn_at`. `cycle` as below.
std::string waits_long(const Message& message, const std::vector<int>& cycle);
/// Its deadline has passed. `cycle`: ranks of the world that wait for each other, this one first, or none. If a rank of
/// its group has left, the sentence says so: the message may have waited for that one, or its peer does.
Status expired(const Message& message, const std::vector<int>& cycle, const Departures& departures);
/// The rank that it needs has left the job, or all have that it could come from: "rank 2 has left the job", and where
/// that is the consequence of another rank's end "rank 1 has left the job, and rank 2 because of that".
Status has_departed(const Message& message, const Departures& departures);

/// What ends the job: so many messages of that rank are kept, in so many bytes, and no receive asks for them.
Status keeps_too_much(int source, std::uint64_t messages, std::uint64_t bytes);
/// There is no memory for a message that another rank has sent. Needs none itself.
inline Status no_memory() { return {ErrorCode::out_of_memory, "no memory"}; }

}  // namespace kolo::p2p
