// SPDX-License-Identifier: Apache-2.0
//
// What happens in a child process that a rank forks. The child inherits contexts whose threads do not exist, whose
// locks may be held for ever, and whose shared memory is not mapped. In the child every call on an inherited object
// therefore throws, and its destructor does nothing; each public object has an `Origin` for that. Connections are
// closed at once; otherwise the rank's death would not be noticed while the child lives. If a process has closed its
// contexts before it forks, its children can be ranks.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

namespace kolo::api {

/// Counts the forks between the first process that made contexts and this one. An object made under another number is
/// inherited. The fork handler alone writes it; every call on a handle reads it.
inline constinit std::atomic<std::uint32_t> fork_count{0};
[[nodiscard]] inline std::uint32_t fork_generation() noexcept { return fork_count.load(std::memory_order_relaxed); }

/// Throws Error (unsupported): this process is a fork of a rank.
[[noreturn]] void throw_inherited();

/// A member of an object that records which process made the object. Any thread.
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

/// Whether there is a context in this process, or was one when it was forked. Any thread.
[[nodiscard]] bool contexts_are_open();
/// Whether there was a context, or one was being made, when this process or a parent of it was forked. Any thread.
[[nodiscard]] bool contexts_are_inherited();

/// A context is being made while this lives. Construction and destruction on any thread.
class ContextInTheMaking {
 public:
  /// Throws Error (transport) if the fork handlers cannot be registered.
  ContextInTheMaking();
  ~ContextInTheMaking();
  ContextInTheMaking(const ContextInTheMaking&) = delete;
  ContextInTheMaking& operator=(const ContextInTheMaking&) = delete;
};

/// A context is open while this lives, and children that are forked meanwhile close these sockets. (Children keep other
/// descriptors, which do not hide a death.) Construction and destruction on any thread.
class ClosedInChildren {
 public:
  /// Throws Error (transport) if the fork handlers cannot be registered.
  explicit ClosedInChildren(const std::vector<int>& descriptors);
  ~ClosedInChildren();
  ClosedInChildren(const ClosedInChildren&) = delete;
  ClosedInChildren& operator=(const ClosedInChildren&) = delete;

 private:
  friend void close_in_child(const ClosedInChildren& inherited) noexcept;

  /// A descriptor with its file's identity: its owner may have closed it since, and the program may use the number now.
  /// The identity is unique for sockets; all descriptors of processes, events and timers share one file.
  struct Descriptor {
    int number = -1;
    dev_t device = 0;
    ino_t file = 0;
  };
  std::vector<Descriptor> descriptors_;
};

}  // namespace kolo::api
