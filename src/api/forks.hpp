// SPDX-License-Identifier: Apache-2.0
//
// What becomes of a rank in a process that it forks. The child inherits contexts whose threads are not there, whose
// locks may be held for ever, and whose shared memory is not mapped. So in the child every call on an inherited object
// throws, and its destructor does nothing; each public object has an `Origin` for that. Connections are closed at once,
// or the rank's death would not be heard while the child lives. A process that has closed its contexts before it forks
// leaves nothing behind: its children can be ranks.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <vector>

namespace kolo::api {

/// Counts the forks on the way to this process since contexts are made: what was made under another number is
/// inherited. Any thread.
[[nodiscard]] std::uint32_t fork_generation() noexcept;

/// Throws Error (unsupported): this process is a fork of a rank.
[[noreturn]] void throw_inherited();

/// A member of an object: which process made it. Any thread.
class Origin {
 public:
  [[nodiscard]] bool is_here() const noexcept { return generation_ == fork_generation(); }
  /// Throws Error (unsupported) in a fork of that process.
  void check() const {
    if (!is_here()) throw_inherited();
  }

 private:
  std::uint32_t generation_ = fork_generation();
};

/// Keeps an inherited object until the process ends, and never destroys it.
void keep_inherited(std::shared_ptr<void> object) noexcept;

/// Whether there is a context in this process, or was one where it was forked. Any thread.
[[nodiscard]] bool contexts_are_open();
/// Whether there was one, or one was being made, where this process or a parent of it was forked. Any thread.
[[nodiscard]] bool contexts_are_inherited();

/// A context is being made while this lives. Construction and destruction on any thread.
class ContextInTheMaking {
 public:
  /// Throws Error (transport) when the system cannot be told.
  ContextInTheMaking();
  ~ContextInTheMaking();
  ContextInTheMaking(const ContextInTheMaking&) = delete;
  ContextInTheMaking& operator=(const ContextInTheMaking&) = delete;
};

/// A context is open while this lives, and children that are forked meanwhile close these sockets. (Other descriptors
/// are left to them: they keep nobody from hearing of a death.) Construction and destruction on any thread.
class ClosedInChildren {
 public:
  /// Throws Error (transport) when the system cannot be told.
  explicit ClosedInChildren(const std::vector<int>& descriptors);
  ~ClosedInChildren();
  ClosedInChildren(const ClosedInChildren&) = delete;
  ClosedInChildren& operator=(const ClosedInChildren&) = delete;

 private:
  friend void close_in_child(const ClosedInChildren& inherited) noexcept;

  /// With the file behind it: its owner may have closed it since, and the number may be the program's by now. Of
  /// sockets that says which one it is; descriptors of processes, events and timers have one file for all.
  struct Descriptor {
    int number = -1;
    dev_t device = 0;
    ino_t file = 0;
  };
  std::vector<Descriptor> descriptors_;
};

}  // namespace kolo::api
