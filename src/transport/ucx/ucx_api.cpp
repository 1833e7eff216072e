// SPDX-License-Identifier: Apache-2.0
#include "transport/ucx/ucx_api.hpp"

#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <string>
#include <string_view>

#include <kolo/error.hpp>

#include "base/settings.hpp"
#include "base/shared_library.hpp"

namespace kolo::ucx {
namespace {

constexpr const char* kFile = "libucp.so.0";
constexpr const char* kDevices = "UCX_NET_DEVICES";
/// The size of TCP's segments, for sending and receiving.
constexpr const char* kSegment = "256k";
constexpr std::array<const char*, 2> kSegments = {"UCX_TCP_TX_SEG_SIZE", "UCX_TCP_RX_SEG_SIZE"};
constexpr const char* kConnectsWithoutWaiting = "UCX_TCP_CONN_NB";
/// UCX's memory for ranks of one machine has a name in /dev/shm for some milliseconds of the start, and a rank that is
/// killed then leaves it there: 3 MB. Ranks of a node share Kolo's own memory.
constexpr const char* kTransports = "UCX_TLS";
constexpr const char* kWithoutSharedMemory = "^posix,sysv,xpmem";
/// From UCX 1.17 on a setting of one transport is changed by its whole name, before by its name without the transport.
constexpr unsigned kMinorWithWholeNames = 17;

void* load_file() {
  const base::ScopedVariable without_handlers("UCX_HANDLE_ERRORS", "none");
  const base::ScopedVariable without_hooks("UCX_MEM_EVENTS", "n");
  const base::ScopedVariable without_warnings("UCX_LOG_LEVEL", "error");
  std::string why;
  void* const file = base::open_shared_library(kFile, "libucx/lib", why);  // pip's libucx-cu12 or -cu13
  if (file != nullptr) return file;
  throw Error(ErrorCode::transport,
              "UCX could not be loaded (" + why + "); install it (Debian: libucx0; pip: libucx-cu12)");
}

template <class Function>
void find(void* file, const char* name, Function& function) {
  function = reinterpret_cast<Function>(::dlsym(file, name));
  if (function != nullptr) return;
  throw Error(ErrorCode::transport, std::string("UCX's library ") + kFile + " has no " + name + "; install UCX " +
                                        built_version() + " or newer");
}

ucp_request_param_t parameters() noexcept {
  ucp_request_param_t parameters{};
  parameters.op_attr_mask = UCP_OP_ATTR_FIELD_MEMORY_TYPE;  // without it UCX finds out the kind of memory each time
  parameters.memory_type = UCS_MEMORY_TYPE_HOST;
  return parameters;
}

}  // namespace

std::string built_version() { return std::to_string(UCP_API_MAJOR) + "." + std::to_string(UCP_API_MINOR); }

Library::Library() : process_(::getpid()) {
  void* const file = load_file();
#define KOLO_UCX_CALL(name) find(file, #name, calls_.name);
  KOLO_UCX_CALLS(KOLO_UCX_CALL)
#undef KOLO_UCX_CALL
  unsigned major = 0;
  unsigned release = 0;
  calls_.ucp_get_version(&major, &minor_, &release);
  if (major != UCP_API_MAJOR || minor_ < UCP_API_MINOR) {
    throw Error(ErrorCode::transport, "UCX " + version() + " was found, but this build of Kolo needs " +
                                          built_version() + " or newer of the same major version; install that");
  }
}

std::string Library::version() const { return calls_.ucp_get_version_string(); }

void Library::check_not_forked() const {
  if (::getpid() == process_) return;
  throw Error(ErrorCode::transport,
              "UCX was loaded before this process was forked, and does not work in a fork: fork before the first "
              "context is made");
}

std::string Library::describe(ucs_status_t status) const { return calls_.ucs_status_string(status); }

// ---------------------------------------------------------------- making

Worker::Worker(const Library& library, const std::string& devices) : library_(library), calls_(library.calls_) {
  library.check_not_forked();
  const base::MutexLock lock(library_.making_);
  try {
    make_context(devices);
    make_worker();
    read_address();
  } catch (...) {
    destroy();
    throw;
  }
}

Worker::~Worker() {
  const base::MutexLock lock(library_.making_);
  destroy();
}

void Worker::destroy() noexcept {
  if (worker_ != nullptr) calls_.ucp_worker_destroy(worker_);
  if (context_ != nullptr) calls_.ucp_cleanup(context_);
}

void Worker::check(ucs_status_t status, const char* call) const {
  if (status == UCS_OK) return;
  throw Error(ErrorCode::transport, std::string(call) + ": " + library_.describe(status));
}

void Worker::make_context(const std::string& devices) {
  ucp_config_t* config = nullptr;
  check(calls_.ucp_config_read(nullptr, nullptr, &config), "ucp_config_read");
  ucs_status_t status = UCS_OK;
  if (!devices.empty() && !base::process_environment()(kDevices)) {
    status = calls_.ucp_config_modify(config, "NET_DEVICES", devices.c_str());
  }
  if (status == UCS_OK && !base::process_environment()(kTransports))
    status = calls_.ucp_config_modify(config, "TLS", kWithoutSharedMemory);
  const std::string_view prefix = library_.minor_ >= kMinorWithWholeNames ? "UCX_" : "UCX_TCP_";
  // Without TCP there is nothing to change; that is no error.
  const auto modify = [&](const char* name, const char* value) {
    static_cast<void>(calls_.ucp_config_modify(config, name + prefix.size(), value));
  };
  const auto is_set = [](const char* name) { return base::process_environment()(name).has_value(); };
  if (std::none_of(kSegments.begin(), kSegments.end(), is_set))
    for (const char* name : kSegments) modify(name, kSegment);
  if (!is_set(kConnectsWithoutWaiting)) modify(kConnectsWithoutWaiting, "y");
  ucp_params_t parameters{};
  parameters.field_mask = UCP_PARAM_FIELD_FEATURES;
  parameters.features = UCP_FEATURE_TAG | UCP_FEATURE_WAKEUP;
  if (status == UCS_OK) status = calls_.ucp_init_version(UCP_API_MAJOR, UCP_API_MINOR, &parameters, config, &context_);
  calls_.ucp_config_release(config);
  check(status, "ucp_init");
}

void Worker::make_worker() {
  ucp_worker_params_t parameters{};
  parameters.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
  parameters.thread_mode = UCS_THREAD_MODE_SERIALIZED;
  check(calls_.ucp_worker_create(context_, &parameters, &worker_), "ucp_worker_create");
  check(calls_.ucp_worker_get_efd(worker_, &event_fd_), "ucp_worker_get_efd");
}

void Worker::read_address() {
  ucp_address_t* address = nullptr;
  std::size_t bytes = 0;
  check(calls_.ucp_worker_get_address(worker_, &address, &bytes), "ucp_worker_get_address");
  address_.assign(reinterpret_cast<const char*>(address), bytes);
  calls_.ucp_worker_release_address(worker_, address);
}

// ---------------------------------------------------------------- using

bool Worker::progress() noexcept { return calls_.ucp_worker_progress(worker_) != 0; }

bool Worker::arm() {
  const ucs_status_t status = calls_.ucp_worker_arm(worker_);
  if (status == UCS_ERR_BUSY) return false;
  check(status, "ucp_worker_arm");
  return true;
}

ucp_ep_h Worker::connect(const std::string& address, ucp_err_handler_cb_t on_error, void* argument) {
  ucp_ep_params_t parameters{};
  parameters.field_mask =
      UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE | UCP_EP_PARAM_FIELD_ERR_HANDLER;
  parameters.address = reinterpret_cast<const ucp_address_t*>(address.data());
  parameters.err_mode = UCP_ERR_HANDLING_MODE_PEER;
  parameters.err_handler = {on_error, argument};
  ucp_ep_h endpoint = nullptr;
  check(calls_.ucp_ep_create(worker_, &parameters, &endpoint), "ucp_ep_create");
  return endpoint;
}

namespace {

Call begun(ucs_status_ptr_t result, bool receives) noexcept {
  Call call;
  call.receives = receives;
  if (UCS_PTR_IS_PTR(result)) {
    call.request = result;
  } else {
    call.status = UCS_PTR_RAW_STATUS(result);
    call.began = call.status == UCS_OK;
  }
  return call;
}

}  // namespace

Call Worker::close(ucp_ep_h endpoint) noexcept {
  ucp_request_param_t force{};
  force.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
  force.flags = UCP_EP_CLOSE_FLAG_FORCE;
  return begun(calls_.ucp_ep_close_nbx(endpoint, &force), false);
}

Call Worker::send(ucp_ep_h endpoint, std::uint64_t tag, const std::byte* data, std::size_t bytes) noexcept {
  const ucp_request_param_t plain = parameters();
  return begun(calls_.ucp_tag_send_nbx(endpoint, data, bytes, tag, &plain), false);
}

Call Worker::receive(std::uint64_t tag, std::uint64_t mask, std::byte* data, std::size_t bytes) noexcept {
  ucp_request_param_t always_a_request = parameters();  // the request gives the message's tag and length
  always_a_request.op_attr_mask |= UCP_OP_ATTR_FLAG_NO_IMM_CMPL;
  return begun(calls_.ucp_tag_recv_nbx(worker_, data, bytes, tag, mask, &always_a_request), true);
}

bool Worker::has_ended(Call& call) const noexcept {
  if (call.request == nullptr) return true;
  if (call.receives) {
    ucp_tag_recv_info_t info{};
    call.status = calls_.ucp_tag_recv_request_test(call.request, &info);
    call.bytes = info.length;
    call.tag = info.sender_tag;
  } else {
    call.status = calls_.ucp_request_check_status(call.request);
  }
  if (call.status == UCS_INPROGRESS) return false;
  calls_.ucp_request_free(call.request);
  call.request = nullptr;
  return true;
}

void Worker::cancel(const Call& call) noexcept {
  if (call.request != nullptr) calls_.ucp_request_cancel(worker_, call.request);
}

}  // namespace kolo::ucx
