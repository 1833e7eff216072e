// SPDX-License-Identifier: Apache-2.0
//
// What becomes of a rank in a process that it forks. The child inherits contexts whose threads are not there: nothing
// of them can be used or destroyed, and their connections are closed at once, or the rank's death would not be heard
// while the child lives.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <vector>

namespace kolo::api {

/// Counts the forks on the way to this process since contexts are made: a context that was made under another number is
/// inherited. Any thread.
[[nodiscard]] std::uint64_t fork_generation() noexcept;

/// Whether there is a context in this process, or was one where it was forked. Any thread.
[[nodiscard]] bool contexts_are_open();

/// Closes descriptors in every child that is forked while it lives. Construction and destruction on any thread.
class ClosedInChildren {
 public:
  /// Throws Error (transport) when the system cannot be told.
  explicit ClosedInChildren(const std::vector<int>& descriptors);
  ~ClosedInChildren();
  ClosedInChildren(const ClosedInChildren&) = delete;
  ClosedInChildren& operator=(const ClosedInChildren&) = delete;

 private:
  friend void close_in_child(const ClosedInChildren& inherited) noexcept;

  /// With the file behind it: its owner may have closed it since, and the number may be the program's by now.
  struct Descriptor {
    int number = -1;
    dev_t device = 0;
    ino_t file = 0;
  };
  std::vector<Descriptor> descriptors_;
};

}  // namespace kolo::api
