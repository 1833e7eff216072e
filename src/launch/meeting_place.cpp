// SPDX-License-Identifier: Apache-2.0
#include "launch/meeting_place.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <utility>
#include <vector>

#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <kolo/error.hpp>

#include "base/clock.hpp"
#include "base/files.hpp"
#include "base/system_error.hpp"
#include "base/text.hpp"
#include "launch/sockets.hpp"

namespace kolo {

Store::~Store() = default;

namespace {

MeetingPlace::State state_of(std::shared_ptr<Store> store) {
  if (store == nullptr) throw Error(ErrorCode::invalid_argument, "the store by which ranks shall meet is null");
  MeetingPlace::State state;
  state.store = std::move(store);
  return state;
}

/// How often to try: a port that is free at one address may be taken at the next.
constexpr int kMostTimes = 100;

/// Binds one port that is free at all of these addresses that belong to this machine; empty: none was found.
std::vector<base::UniqueFd> keep_port(const std::vector<launch::Endpoint>& all, int& error) {
  std::vector<base::UniqueFd> kept;
  std::uint16_t port = 0;
  for (const launch::Endpoint& one : all) {
    base::UniqueFd fd = launch::bind_socket(one.with_port(port), error);
    if (!fd.valid() && error == EADDRINUSE) return {};
    if (!fd.valid()) continue;
    port = launch::own_endpoint(fd.get()).port();
    kept.push_back(std::move(fd));
  }
  return kept;
}

}  // namespace

MeetingPlace::MeetingPlace(std::shared_ptr<Store> store)
    : state_(std::make_shared<const State>(state_of(std::move(store)))) {}
MeetingPlace::MeetingPlace(std::shared_ptr<const State> state) noexcept : state_(std::move(state)) {}
MeetingPlace::~MeetingPlace() = default;
MeetingPlace::MeetingPlace(const MeetingPlace&) = default;
MeetingPlace& MeetingPlace::operator=(const MeetingPlace&) = default;

std::string MeetingPlace::describe() const {
  if (state_->store != nullptr) return "a store of the program's";
  if (!state_->path.empty()) return "file://" + state_->path;
  return "tcp://" + launch::at_port(state_->host, state_->ports.front());
}

std::uint16_t MeetingPlace::port() const noexcept { return state_->ports.empty() ? 0 : state_->ports.front(); }

namespace store {

MeetingPlace tcp(const std::string& host, std::uint16_t port) {
  auto state = std::make_shared<MeetingPlace::State>();
  state->host = host;
  if (port == 0) {
    std::string wrong;
    int error = 0;
    const std::vector<launch::Endpoint> all = launch::resolve(host, 0, wrong);
    for (int time = 0; state->kept_ports.empty() && time < kMostTimes; ++time)
      state->kept_ports = keep_port(all, error);
    if (state->kept_ports.empty()) {
      throw Error(ErrorCode::transport, "there is no free port for rank 0 at " + host + ": " +
                                            (wrong.empty() ? base::errno_text(error) : wrong) +
                                            "; port 0 is for an address of the machine on which rank 0 runs");
    }
    port = launch::own_endpoint(state->kept_ports.front().get()).port();
  }
  state->ports.push_back(port);
  return MeetingPlace(std::shared_ptr<const MeetingPlace::State>(std::move(state)));
}

MeetingPlace file(const std::string& path) {
  if (path.empty()) throw Error(ErrorCode::invalid_argument, "the file by which ranks shall meet has no name");
  auto state = std::make_shared<MeetingPlace::State>();
  state->path = path;
  return MeetingPlace(std::shared_ptr<const MeetingPlace::State>(std::move(state)));
}

}  // namespace store

namespace launch {

MeetingPlace parse_place(const std::string& text, const std::string& variable) {
  const auto refuse = [&]() -> Error {
    return Error(ErrorCode::invalid_setting,
                 variable + " is \"" + text +
                     "\"; expected where ranks meet: tcp://host:port (the port not 0), or file:///path");
  };
  const std::string file = "file://";
  const std::string tcp = "tcp://";
  if (text.rfind(file + "/", 0) == 0) return store::file(text.substr(file.size()));
  if (text.rfind(tcp, 0) != 0) throw refuse();
  const std::size_t colon = text.rfind(':');
  std::string host = text.substr(tcp.size(), std::max(colon, tcp.size()) - tcp.size());
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  } else if (host.find(':') != std::string::npos) {
    throw refuse();
  }
  const auto port = base::parse_number<std::uint16_t>(std::string_view(text).substr(colon + 1));
  if (host.empty() || port.value_or(0) == 0) throw refuse();
  return store::tcp(host, *port);
}

MeetingPlace place_of_ports(std::string host, std::vector<std::uint16_t> ports) {
  auto state = std::make_shared<MeetingPlace::State>();
  state->host = std::move(host);
  state->ports = std::move(ports);
  return MeetingPlace(std::shared_ptr<const MeetingPlace::State>(std::move(state)));
}

std::unique_ptr<Directions> directions_to(const MeetingPlace& place, const std::string& interface, const JobKey& key) {
  const MeetingPlace::State& state = place.state();
  if (state.store != nullptr) return store_directions(state.store, place.describe(), interface, key);
  if (!state.path.empty()) {
    const Owner believed = key.secret.empty() ? Owner::self : Owner::any;
    return store_directions(file_store(state.path, believed), place.describe(), interface, key);
  }
  return fixed_directions(state.host, state.ports, key);
}

// ---------------------------------------------------------------- the store in a file

namespace {

constexpr std::chrono::milliseconds kLook{20};
/// The entry of a host with many addresses. A longer one was not written by rank 0.
constexpr std::size_t kLongest = std::size_t{64} << 10;

class FileStore final : public Store {
 public:
  FileStore(std::string path, Owner believed) : path_(std::move(path)), believed_(believed) {}

  void set(const std::string& key, const std::string& value) override {
    try {
      base::replace_file(path_of(key), value, S_IRUSR | S_IWUSR);
    } catch (const Error& error) {
      throw Error(ErrorCode::transport, "rank 0 cannot write its address to " + error.status().message());
    }
  }

  std::optional<std::string> get(const std::string& key, std::chrono::nanoseconds timeout) override {
    const base::Time deadline = base::after(base::now(), timeout);
    while (true) {
      std::optional<std::string> value = read(path_of(key));
      if (value || base::now() >= deadline) return value;
      std::vector<pollfd> nothing;  // a shared file system does not report changes
      wait_until(nothing, std::min<base::Time>(deadline, base::now() + kLook));
    }
  }

 private:
  [[nodiscard]] std::string path_of(const std::string& key) const {
    std::error_code none;
    if (!std::filesystem::is_directory(path_, none)) return path_;
    std::string name = key;
    std::replace(name.begin(), name.end(), '/', '-');
    return path_ + "/" + name;
  }

  void check(int fd, const std::string& path) const {
    struct stat file = {};
    if (::fstat(fd, &file) != 0) base::throw_errno("cannot read where rank 0 is from " + path, errno);
    if (believed_ == Owner::any || file.st_uid == ::geteuid() || file.st_uid == 0) return;
    throw Error(
        ErrorCode::transport,
        path + " belongs to another user (number " + std::to_string(file.st_uid) +
            "), and without KOLO_JOB_KEY nothing else proves who wrote it: take a file of your own, or give all "
            "ranks the same KOLO_JOB_KEY");
  }

  static std::optional<base::NamedFile> find(const std::string& path) {
    try {
      return base::find_named(path);
    } catch (const Error& error) {
      throw Error(ErrorCode::transport, "cannot read where rank 0 is from " + error.status().message() +
                                            ": give the job a path at which a file can be written");
    }
  }

  [[nodiscard]] std::optional<std::string> read(const std::string& path) const {
    const std::optional<base::NamedFile> file = find(path);
    if (!file) return std::nullopt;
    check(file->fd.get(), path);
    std::string value;
    std::array<char, 4096> piece;
    while (value.size() < kLongest) {
      const ssize_t got = ::read(file->fd.get(), piece.data(), piece.size());
      if (got == 0) return value;
      if (got < 0 && errno == ESTALE) return std::nullopt;  // replaced meanwhile, on another host
      if (got < 0) base::throw_errno("cannot read where rank 0 is from " + path, errno);
      value.append(piece.data(), static_cast<std::size_t>(got));
    }
    return value;
  }

  const std::string path_;
  const Owner believed_;
};

}  // namespace

std::shared_ptr<Store> file_store(std::string path, Owner believed) {
  return std::make_shared<FileStore>(std::move(path), believed);
}

}  // namespace launch
}  // namespace kolo
