// SPDX-License-Identifier: Apache-2.0
//
// All calls of UCX that Kolo makes. Results are checked. Nothing here makes decisions.
//
// The library is loaded when it is first needed, and never linked. When UCX is loaded, it installs signal handlers and
// intercepts calls that map memory; a linked UCX would do that before `main`, in every program that uses Kolo.
// UCX_HANDLE_ERRORS=none and UCX_MEM_EVENTS=n prevent both. UCX_LOG_LEVEL=error prevents a warning for each message
// that was under way when a job failed. Kolo sets these three unless the user has. UCX is never unloaded, because it
// has threads of its own.
#pragma once

#include <sys/types.h>
#include <ucp/api/ucp.h>

#include <cstddef>
#include <cstdint>
#include <string>

#include "base/mutex.hpp"

namespace kolo::ucx {

/// "1.13": the version of the headers with which Kolo was built.
[[nodiscard]] std::string built_version();

/// The calls of UCX that Kolo makes.
#define KOLO_UCX_CALLS(CALL)                                                                                           \
  CALL(ucp_get_version)                                                                                                \
  CALL(ucp_get_version_string)                                                                                         \
  CALL(ucp_config_read)                                                                                                \
  CALL(ucp_config_modify)                                                                                              \
  CALL(ucp_config_release)                                                                                             \
  CALL(ucp_init_version)                                                                                               \
  CALL(ucp_cleanup)                                                                                                    \
  CALL(ucp_worker_create)                                                                                              \
  CALL(ucp_worker_destroy)                                                                                             \
  CALL(ucp_worker_get_address)                                                                                         \
  CALL(ucp_worker_release_address)                                                                                     \
  CALL(ucp_worker_get_efd)                                                                                             \
  CALL(ucp_worker_progress)                                                                                            \
  CALL(ucp_worker_arm)                                                                                                 \
  CALL(ucp_ep_create)                                                                                                  \
  CALL(ucp_ep_close_nbx)                                                                                               \
  CALL(ucp_tag_send_nbx)                                                                                               \
  CALL(ucp_tag_recv_nbx)                                                                                               \
  CALL(ucp_tag_recv_request_test)                                                                                      \
  CALL(ucp_request_check_status)                                                                                       \
  CALL(ucp_request_cancel)                                                                                             \
  CALL(ucp_request_free)                                                                                               \
  CALL(ucs_status_string)

/// The loaded library. There is one in a process, until the process ends. Thread-safe.
class Library {
 public:
  /// Loads it. Throws Error (transport) if there is none, or if it is older than the headers.
  Library();
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;

  /// "1.13.1", of the library that runs.
  [[nodiscard]] std::string version() const;
  /// Throws Error (transport) in a process that was forked after the library was loaded: UCX's threads do not exist
  /// there, and locks that they held stay held.
  void check_not_forked() const;
  /// UCX's own text.
  [[nodiscard]] std::string describe(ucs_status_t status) const;

 private:
  friend class Worker;

  struct Calls {
#define KOLO_UCX_CALL(name) decltype(&::name) name = nullptr;
    KOLO_UCX_CALLS(KOLO_UCX_CALL)
#undef KOLO_UCX_CALL
  };
  Calls calls_;
  unsigned minor_ = 0;  // of its version
  pid_t process_;
  mutable base::Mutex making_;  ///< held while a worker is made or destroyed: it protects UCX's process-wide state
};

/// A started call.
struct Call {
  void* request = nullptr;  ///< null: the call has ended, and the other members are valid
  bool receives = false;
  bool began = true;  ///< false: it failed at once
  ucs_status_t status = UCS_OK;
  std::size_t bytes = 0;  ///< bytes that came,
  std::uint64_t tag = 0;  ///< with this tag
};

/// A rank's UCX context with its one worker. One thread at a time, not always the same.
class Worker {
 public:
  /// `devices`: the network interfaces that it may use, separated by commas; empty: all. UCX_NET_DEVICES wins.
  /// TCP's segments have 256 KiB in both directions, unless the user has set one of them (UCX_TCP_TX_SEG_SIZE,
  /// UCX_TCP_RX_SEG_SIZE; the same on all hosts). Connecting does not block, unless UCX_TCP_CONN_NB says otherwise: if
  /// packets are lost, the system takes two minutes to connect. Throws Error (transport).
  Worker(const Library& library, const std::string& devices);
  /// All calls must have ended.
  ~Worker();
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  [[nodiscard]] const Library& library() const noexcept { return library_; }
  /// The address that others need to connect to it.
  [[nodiscard]] const std::string& address() const noexcept { return address_; }
  [[nodiscard]] int event_fd() const noexcept { return event_fd_; }
  /// Moves data. Returns whether anything moved.
  bool progress() noexcept;
  /// Makes `event_fd` readable when something comes from now on. False: something has come already; call `progress`,
  /// and try again.
  [[nodiscard]] bool arm();

  /// Begins to connect; messages that are sent meanwhile wait for the connection. `on_error` is called inside
  /// `progress`, once, when the connection has failed. Throws Error (transport).
  [[nodiscard]] ucp_ep_h connect(const std::string& address, ucp_err_handler_cb_t on_error, void* argument);
  /// Closes the connection at once: what is open on it ends with UCS_ERR_CANCELED.
  [[nodiscard]] Call close(ucp_ep_h endpoint) noexcept;
  [[nodiscard]] Call send(ucp_ep_h endpoint, std::uint64_t tag, const std::byte* data, std::size_t bytes) noexcept;
  /// Receives a message from any rank whose tag agrees in the bits of `mask`.
  [[nodiscard]] Call receive(std::uint64_t tag, std::uint64_t mask, std::byte* data, std::size_t bytes) noexcept;
  /// Whether the call has ended.
  [[nodiscard]] bool has_ended(Call& call) const noexcept;
  /// Makes the call end soon: with UCS_ERR_CANCELED, or normally if it is too late.
  void cancel(const Call& call) noexcept;

 private:
  void make_context(const std::string& devices);
  void make_worker();
  void read_address();
  void check(ucs_status_t status, const char* call) const;
  void destroy() noexcept;

  const Library& library_;
  const Library::Calls& calls_;
  ucp_context_h context_ = nullptr;
  ucp_worker_h worker_ = nullptr;
  int event_fd_ = -1;
  std::string address_;
};

}  // namespace kolo::ucx
