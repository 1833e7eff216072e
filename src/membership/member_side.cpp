// SPDX-License-Identifier: Apache-2.0
#include "membership/member_side.hpp"

namespace kolo::membership {

std::optional<Notice> MemberSide::hear(const Notice& notice) {
  switch (notice.topic) {
  case Topic::ask:
    return Notice{Topic::alive, 0, 0, 0, {}};
  case Topic::change:
    if (notice.generation != generation_ || waits_) break;
    due_ = true;
    trouble_ = notice.text;
    break;
  case Topic::next:
    generation_ = notice.generation;
    place_ = notice;
    waits_ = due_ = false;
    trouble_.clear();
    entry_.reset();
    break;
  case Topic::entry:
    if (notice.generation == generation_ && !waits_) entry_ = notice.text;
    break;
  case Topic::farewell:
    farewell_ = notice.text;
    waits_ = false;
    break;
  default:
    break;  // a process's own topics: the keeper says none of them
  }
  return std::nullopt;
}

Notice MemberSide::ready() {
  waits_ = true;
  due_ = false;
  trouble_.clear();
  entry_.reset();
  return {Topic::ready, generation_, 0, 0, {}};
}

}  // namespace kolo::membership
