// SPDX-License-Identifier: Apache-2.0

/// @file
/// How the ranks of a job meet if MPI has not started them.
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

/// A key-value service of the program's own, by which rank 0 tells the others where it listens. Each rank gives an
/// object of its own to `Options::with_store`; all objects must reach the same service.
///
/// Kolo writes and reads one key, "kolo/rank-0", while ranks meet, on the thread that makes the context. A value of an
/// earlier job or context may still be there. Anybody who can read the store can join the job, unless `KOLO_JOB_KEY` is
/// set. If a member throws, the start fails with the exception's text.
class KOLO_API Store {
 public:
  virtual ~Store();
  /// Sets the key's value, and replaces an earlier one.
  virtual void set(const std::string& key, const std::string& value) = 0;
  /// The key's value. If there is none, waits for it for at most `timeout`, and then returns an empty optional.
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
  /// The port of `store::tcp`; 0 for other places.
  [[nodiscard]] std::uint16_t port() const noexcept;

  /// The library's own.
  struct State;
  explicit MeetingPlace(std::shared_ptr<const State> state) noexcept;
  [[nodiscard]] const State& state() const noexcept { return *state_; }

 private:
  std::shared_ptr<const State> state_;
};

namespace store {

/// Rank 0 listens at this address (IPv4, IPv6 or a host's name), and the other ranks connect to it. Port 0 takes a free
/// port of this machine, on which rank 0 must then run. The port is reserved while the value exists; tell the other
/// ranks `port()`. Throws `Error` (transport) when there is none.
[[nodiscard]] KOLO_API MeetingPlace tcp(const std::string& host, std::uint16_t port);

/// Rank 0 writes its address into a file that all ranks see. If `path` is a directory, the file is made in it. Only its
/// user can read the file. A file that an earlier job has left does no harm.
[[nodiscard]] KOLO_API MeetingPlace file(const std::string& path);

}  // namespace store
}  // namespace kolo

#endif  // KOLO_STORE_HPP
