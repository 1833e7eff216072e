// SPDX-License-Identifier: Apache-2.0
//
// Every call of UCX that Kolo makes, with its result checked. Nothing here decides anything.
//
// The library is loaded when it is first wanted, and never linked. As it is loaded it installs handlers for signals,
// and puts itself between the process and the kernel where memory is mapped; a linked one would do that before `main`,
// in every program that uses Kolo. UCX_HANDLE_ERRORS=none and UCX_MEM_EVENTS=n keep it from both, and
// UCX_LOG_LEVEL=error from a line of warning for each message that was under way when a job failed, unless the user has
// set them. It is never unloaded: it has threads of its own.
#pragma once

#include <sys/types.h>
#include <ucp/api/ucp.h>

#include <cstddef>
#include <cstdint>
#include <string>

#include "base/mutex.hpp"

namespace kolo::ucx {

/// "1.13": of the headers that this build was made with.
[[nodiscard]] std::string built_version();

/// The loaded library: one in a process, which lives as long as that. Thread-safe.
class Library {
 public:
  /// Loads it. Throws Error (transport) when there is none, or an older one than the headers.
  Library();
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;

  /// "1.13.1", of the library that runs.
  [[nodiscard]] std::string version() const;
  /// Throws Error (transport) in a process that was forked after the library was loaded: its threads are not there, and
  /// their locks may be held.
  void check_not_forked() const;
  /// UCX's own words.
  [[nodiscard]] std::string describe(ucs_status_t status) const;

 private:
  friend class Worker;

  struct Calls {
    decltype(&::ucp_get_version) get_version = nullptr;
    decltype(&::ucp_get_version_string) get_version_string = nullptr;
    decltype(&::ucp_config_read) config_read = nullptr;
    decltype(&::ucp_config_modify) config_modify = nullptr;
    decltype(&::ucp_config_release) config_release = nullptr;
    decltype(&::ucp_init_version) init_version = nullptr;
    decltype(&::ucp_cleanup) cleanup = nullptr;
    decltype(&::ucp_worker_create) worker_create = nullptr;
    decltype(&::ucp_worker_destroy) worker_destroy = nullptr;
    decltype(&::ucp_worker_get_address) worker_get_address = nullptr;
    decltype(&::ucp_worker_release_address) worker_release_address = nullptr;
    decltype(&::ucp_worker_get_efd) worker_get_efd = nullptr;
    decltype(&::ucp_worker_progress) worker_progress = nullptr;
    decltype(&::ucp_worker_arm) worker_arm = nullptr;
    decltype(&::ucp_ep_create) ep_create = nullptr;
    decltype(&::ucp_ep_close_nbx) ep_close = nullptr;
    decltype(&::ucp_tag_send_nbx) tag_send = nullptr;
    decltype(&::ucp_tag_recv_nbx) tag_receive = nullptr;
    decltype(&::ucp_tag_recv_request_test) receive_test = nullptr;
    decltype(&::ucp_request_check_status) request_status = nullptr;
    decltype(&::ucp_request_cancel) request_cancel = nullptr;
    decltype(&::ucp_request_free) request_free = nullptr;
    decltype(&::ucs_status_string) status_string = nullptr;
  };

  Calls calls_;
  pid_t process_;
  mutable base::Mutex making_;  ///< held while a worker is made or destroyed: what UCX keeps for the process
};

/// A call that was begun.
struct Call {
  void* request = nullptr;  ///< null: it has ended, and the rest counts
  bool receives = false;
  bool began = true;  ///< false: it failed at once
  ucs_status_t status = UCS_OK;
  std::size_t bytes = 0;  ///< that came,
  std::uint64_t tag = 0;  ///< with this tag
};

/// A context of UCX's and its one worker: a rank's. One thread at a time, which may change.
class Worker {
 public:
  /// `devices`: the network interfaces that it may use, separated by commas; empty: all. UCX_NET_DEVICES wins.
  /// TCP's segments are of 256 KiB, of what is sent as of what is received, unless the user has set one of them
  /// (UCX_TCP_TX_SEG_SIZE, UCX_TCP_RX_SEG_SIZE; the same on all hosts). It connects without waiting, unless
  /// UCX_TCP_CONN_NB says otherwise: where packets are lost, connecting takes the system two minutes. Throws Error
  /// (transport).
  Worker(const Library& library, const std::string& devices);
  /// All calls must have ended.
  ~Worker();
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  [[nodiscard]] const Library& library() const noexcept { return library_; }
  /// What others need to connect to it.
  [[nodiscard]] const std::string& address() const noexcept { return address_; }
  [[nodiscard]] int event_fd() const noexcept { return event_fd_; }
  /// Moves what can be moved; whether that was anything.
  bool progress() noexcept;
  /// Has `event_fd` become readable when something comes. False: something has come already; call `progress`, and try
  /// again.
  [[nodiscard]] bool arm();

  /// Begins to connect; what is sent meanwhile goes later. `on_error` is called inside `progress`, once, when the
  /// connection has failed. Throws Error (transport).
  [[nodiscard]] ucp_ep_h connect(const std::string& address, ucp_err_handler_cb_t on_error, void* argument);
  /// At once: what is open on the connection ends with UCS_ERR_CANCELED.
  [[nodiscard]] Call close(ucp_ep_h endpoint) noexcept;
  [[nodiscard]] Call send(ucp_ep_h endpoint, std::uint64_t tag, const std::byte* data, std::size_t bytes) noexcept;
  /// From anybody whose tag agrees in the bits of `mask`.
  [[nodiscard]] Call receive(std::uint64_t tag, std::uint64_t mask, std::byte* data, std::size_t bytes) noexcept;
  /// Whether the call has ended.
  [[nodiscard]] bool has_ended(Call& call) const noexcept;
  /// The call ends soon: as if nothing had happened where it is too late, else with UCS_ERR_CANCELED.
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
