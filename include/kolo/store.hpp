// SPDX-License-Identifier: Apache-2.0

/// @file
/// Where the ranks of a job meet when no MPI has started them.
#ifndef KOLO_STORE_HPP
#define KOLO_STORE_HPP

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>

#include <kolo/export.hpp>

namespace kolo {

/// A place of the program's own by which rank 0 tells the others where it listens: a key-value service that the
/// program has anyway. Each rank gives its own object to `Options::with_store`; all of them speak of the same place.
///
/// Kolo writes and reads one key, "kolo/rank-0", while ranks meet, from the thread that makes the context; what it
/// wrote for an earlier job or an earlier context may still be there. Who can read the store can join the job, unless
/// `KOLO_JOB_KEY` is set. An exception ends the start with its text.
class KOLO_API Store {
 public:
  virtual ~Store();
  /// Replaces what was there.
  virtual void set(const std::string& key, const std::string& value) = 0;
  /// The value; waits for it if there is none, for at most `timeout`, and then returns nothing.
  virtual std::optional<std::string> get(const std::string& key, std::chrono::nanoseconds timeout) = 0;
};

/// Where ranks meet: by `store::tcp`, `store::file`, or a `Store` of the program's. A small value.
class KOLO_API MeetingPlace {
 public:
  /// Converts: `with_store(my_store, rank, size)`. Throws `Error` (invalid_argument) for a null pointer.
  MeetingPlace(std::shared_ptr<Store> store);
  template <class Own, std::enable_if_t<std::is_convertible_v<Own*, Store*>, int> = 0>
  MeetingPlace(std::shared_ptr<Own> store) : MeetingPlace(std::shared_ptr<Store>(std::move(store))) {}
  ~MeetingPlace();
  MeetingPlace(const MeetingPlace&);
  MeetingPlace& operator=(const MeetingPlace&);

  /// As `KOLO_STORE` spells it: "tcp://10.0.0.1:29500", "file:///shared/job7"; "a store of the program's".
  [[nodiscard]] std::string describe() const;
  /// Of `store::tcp`; 0 for others.
  [[nodiscard]] std::uint16_t port() const noexcept;

  /// The library's own.
  struct State;
  explicit MeetingPlace(std::shared_ptr<const State> state) noexcept;
  [[nodiscard]] const State& state() const noexcept { return *state_; }

 private:
  std::shared_ptr<const State> state_;
};

namespace store {

/// Rank 0 listens at this address, which may be IPv4, IPv6 or a host's name, and the others connect to it. Port 0 is a
/// free port of this machine, where rank 0 must then run: it is kept for this job while the value lives, and `port()`
/// tells the others which. Throws `Error` (transport) when there is none.
[[nodiscard]] KOLO_API MeetingPlace tcp(const std::string& host, std::uint16_t port);

/// Rank 0 leaves its address in a file that all ranks see; where `path` is a directory, in a file in there. The file
/// can be read by its user alone, and what an earlier job has left in it does no harm.
[[nodiscard]] KOLO_API MeetingPlace file(const std::string& path);

}  // namespace store
}  // namespace kolo

#endif  // KOLO_STORE_HPP
