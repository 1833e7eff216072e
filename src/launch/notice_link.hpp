// SPDX-License-Identifier: Apache-2.0
//
// The connection of a process of an elastic job to its parent, the kolo-run that has started it.
//
// The parent makes a listener for each process that it starts, a local socket under an abstract name, and gives the
// process its address and a random word as KOLO_KEEPER ("local:<name>/<word>"). The process, or one below it where it
// is a shell, connects once. The parent takes the first connection of its own user, and closes the listener: it is that
// process's rank, whose number the kernel tells.
//
//   process -> parent   ready(0)                       its program is set up, and it wants in
//   parent -> process   next(g, rank, size)            begin generation g; the key of g follows from KOLO_JOB_KEY
//   process -> parent   entry(g, text)                 as rank 0: where the others find it
//   parent -> process   entry(g, text)                 to the others
//   process -> parent   started(g)
//   parent -> process   ask                            whenever somebody waits for this process
//   process -> parent   alive                          at once, from a thread of its own
//   parent -> process   change(g, text)                leave g with the others, in order; a text: a member is gone
//   process -> parent   ready(g), leaving, done(g)
//   parent -> process   farewell(text)                 there is no generation for this process any more
//
// membership/keeper.hpp says when. Each is a frame (connection.hpp) of the type `notice`, by a session key made from
// the word. The connection ends with the process. When the parent ends, its processes are killed.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <utility>

#include "base/unique_fd.hpp"
#include "launch/connection.hpp"
#include "membership/notice.hpp"

namespace kolo::launch {

/// What KOLO_KEEPER says.
struct ParentAddress {
  std::string name;  ///< of the local socket, without the zero byte that makes it abstract
  std::string word;
};
[[nodiscard]] std::string encode(const ParentAddress& address);
/// Throws Error (invalid_setting).
[[nodiscard]] ParentAddress decode_parent(const std::string& text);

/// The secret of one generation of a job.
[[nodiscard]] std::string generation_key(const std::string& job_key, std::uint64_t generation);

/// One end of such a connection. Never blocks. One thread at a time.
class NoticeLink {
 public:
  /// The process's end. Throws Error (transport).
  [[nodiscard]] static NoticeLink connect(const ParentAddress& address);

  [[nodiscard]] int fd() const noexcept { return connection_.fd(); }
  [[nodiscard]] short events() const noexcept { return connection_.events(); }
  /// As that of Connection.
  [[nodiscard]] const std::string& lost() const noexcept { return connection_.lost(); }
  [[nodiscard]] bool flushed() const noexcept { return connection_.flushed(); }
  /// The process at the other end; 0: this one does not see it.
  [[nodiscard]] pid_t peer() const noexcept { return peer_; }

  void send(const membership::Notice& notice);
  void pump() { connection_.pump(); }
  /// Throws Error (transport) for what is no notice.
  [[nodiscard]] std::optional<membership::Notice> take();

 private:
  friend class NoticeListener;
  NoticeLink(base::UniqueFd fd, Session session, pid_t peer);

  Connection connection_;
  pid_t peer_;
};

/// The parent's listener for one process.
class NoticeListener {
 public:
  /// Throws Error (transport).
  NoticeListener();
  [[nodiscard]] const ParentAddress& address() const noexcept { return address_; }
  /// Readable while a process wants to connect.
  [[nodiscard]] int fd() const noexcept { return fd_.get(); }
  /// The next process that wants to connect. Nothing if there is none, or if it is another user's: look again when `fd`
  /// is readable.
  [[nodiscard]] std::optional<NoticeLink> try_accept();

 private:
  base::UniqueFd fd_;
  ParentAddress address_;
};

}  // namespace kolo::launch
