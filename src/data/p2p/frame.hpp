// SPDX-License-Identifier: Apache-2.0
//
// Point to point on the CPU: the protocol between two ranks.
//
// Nobody else has a part in it: no log, no sequencer. From each rank to each other one there is a *channel*, which
// carries *frames* in order and loses none: a ring in the memory of the node (node_channels.hpp), or messages of the
// transport between nodes (net_channels.hpp). A frame has a head and perhaps data.
//
//   sender                                 receiver
//   whole      head and all the data   ->   a short message. The send is done once the frame is in the channel.
//
//   announced  head                    ->   a long one. It waits until a receive asks for it. Then either
//              <- wanted                    the receiver asks for the data,
//   part, part, ... with data          ->   which comes piece by piece; the send is done when the last is in the
//                                      channel
//   or
//              <- taken                     the receiver has read it where it lies, in the sender's memory
//
//   Instead of what is due:
//              <- refused                   the receive does not fit (it fails, and so does the send), or was given up
//   withdrawn                          ->   the send was given up: its deadline has passed, or its handle was destroyed
//
// Late data. The data of a message may come after its call: a device copies it into the memory of the host. Such a
// message is announced at once, whatever its length, so that it keeps its place in the order; what has come of its data
// goes into the channel once it is wanted. It has no permit.
//
// By the devices. Where the tensors of both sides lie on devices that can pass data to each other, the protocol only
// matches. The sender says in `announced` what its tensor's device can do (`Way`). If the receive's can do it, too, and
// both ranks know by now that their devices have found each other (engine/device_pairs.hpp), the receiver answers
// `wanted` by `Way::device`. With that the protocol is done with the message on either side, and both ranks make the
// next call of the pair's: in the order of these answers, which is that in which the receiver has matched. If the
// sender has given up its send meanwhile, it makes the call all the same, but of nothing: then the receive fails. So a
// sender that gives up what it has offered looks out for the answer, and the receiver answers `refused` to a
// `withdrawn` that comes before it has matched.
// Devices that have not found each other yet begin to, once for all: `Way::introduce` in both frames tells both ranks.
// That message, and those until then, go by the host; so do all of a direction beyond a rank's first
// kMostDirectionsByDevice.
//
// Order. The frame that begins a message, `whole` or `announced`, goes into the channel in the order of the sends to
// that rank. So messages of a pair and tag match receives in the order of the calls on both sides (matching.hpp); the
// data of long ones may arrive later and in any order.
//
// Space. A rank takes frames whenever it has anything open: taking one needs no space elsewhere, for data goes into the
// receive's buffer or, of a short message that nobody has asked for, into memory of its own; answers are kept in
// a list until the channel back has room. A sender puts data of a long message into the channel only when it is wanted.
// So two ranks that have operations open never wait for each other's channel to become empty, whatever they send.
//
// Kept messages. Short messages that nobody has asked for take memory of the receiver's, and no receive may ever ask
// for them. So there are two limits (protocol.hpp). Beyond 64 MiB of one rank's the receiver leaves that rank's channel
// alone until it has a message open that needs it: a send to that rank, or a receive from it or from any. Then the
// channel fills, and the sender's calls wait, as they do for a receiver that is not in a call at all. While there is
// such a message the receiver goes on, for what it waits for may be behind what it does not want. Beyond 1 GiB of all
// ranks' the job ends with an error that names the sender. Frames of other nodes come in one stream: they are always
// taken, and have the second limit alone.
//
// Reading the sender's memory. `announced` may carry an address and a *permit* (node_channels.hpp). The receiver reads,
// or has the data sent, as it likes. A sender that gives its send up takes the permit away: after that nobody reads, or
// believes what he has read. Nobody writes into a receiver's memory but the receiver.
//
// A rank that leaves the job. What it has sent within its node is in the channel before the others hear of it, so they
// take that and expect nothing more. Between nodes it may still be on its way; they wait for it for a while.
//
// Ends. A message that is given up on one side tells the other, and for which rank's leaving it is given up, if that is
// the reason: the error there names that rank ("First causes", control/messages.hpp). What arrives for a message that
// is no more is dropped: numbers of messages are never used twice. When the context fails all messages do, without a
// frame: peers hear of it by the log. So a permit that has gone is no reason by itself: the receiver waits for the
// frame, or for the log.
#pragma once

#include <cstddef>
#include <cstdint>

#include <kolo/error.hpp>
#include <kolo/types.hpp>

#include "base/text.hpp"

namespace kolo::p2p {

enum class FrameKind : std::uint8_t {
  whole = 1,
  announced,
  part,
  withdrawn,
  wanted,
  taken,
  refused,
};

/// How the data of a message may go: of `announced`, where its tensor lies; of `wanted`, what was agreed.
enum class Way : std::uint8_t {
  host,       ///< by memory of the host
  introduce,  ///< likewise, but both tensors, or this one, lie on devices that should find each other
  device,     ///< from device to device
};

/// Why a receiver refuses.
enum class Refusal : std::uint8_t { none, too_long, other_type, given_up, set_gone };

/// The head of a frame.
struct Frame {
  std::uint64_t set = 0;      ///< of a message that begins: the serial number of its process set
  std::uint64_t id = 0;       ///< of the message: its sender's number
  std::uint64_t bytes = 0;    ///< of the message; of a part: where it begins; of a refusal: the receive's room
  std::uint64_t address = 0;  ///< of data that may be read where it lies
  std::int32_t tag = 0;
  std::uint32_t permit = 0;   ///< 0: it may not be read
  std::int32_t because = -1;  ///< of a message that is given up: the rank whose leaving is the reason; -1: none
  FrameKind kind = FrameKind::whole;
  DType dtype = DType::uint8;  ///< of a refusal: the receive's
  Refusal refusal = Refusal::none;
  Way way = Way::host;
};
static_assert(sizeof(Frame) == 48);

/// Throws Error (transport): that rank has done what no rank does. `parts` follow "rank 3 ".
template <class... Parts>
[[noreturn]] void blame(int rank, const Parts&... parts) {
  base::Text text;
  text << "rank " << rank << ' ';
  (text << ... << parts);
  throw Error(ErrorCode::transport, text.str());
}

}  // namespace kolo::p2p
