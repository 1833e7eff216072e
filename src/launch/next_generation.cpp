// SPDX-License-Identifier: Apache-2.0
#include "launch/next_generation.hpp"

#include <poll.h>

#include <cerrno>
#include <thread>
#include <utility>
#include <vector>

#include <kolo/error.hpp>

#include "base/clock.hpp"
#include "base/mutex.hpp"
#include "base/poller.hpp"
#include "base/system_error.hpp"
#include "base/thread.hpp"
#include "launch/notice_link.hpp"
#include "launch/watched_store.hpp"
#include "membership/member_side.hpp"

namespace kolo::launch {

using membership::MemberSide;
using membership::Notice;

namespace {

constexpr const char* kParentIsGone = "the kolo-run that has started this process has ended";

}  // namespace

/// The thread, and what it has heard.
class Generations::Link {
 public:
  explicit Link(const ParentAddress& parent) : link_(NoticeLink::connect(parent)) {
    thread_ = base::start_thread("the thread that answers kolo-run", [this] { serve(); });
  }
  ~Link() {
    {
      const base::MutexLock lock(mutex_);
      ends_ = true;
    }
    woken_.signal();
    thread_.join();
  }
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;

  /// Sends what `say` makes of this process's side.
  template <class Say>
  void send(Say say) KOLO_EXCLUDES(mutex_) {
    const base::MutexLock lock(mutex_);
    link_.send(say(member_));
    if (!link_.flushed()) woken_.signal();  // the thread sends the rest
  }

  /// What `find` finds, once it finds something, or nothing at the deadline. Throws Error (transport) if the parent is
  /// gone before.
  template <class Found, class Find>
  std::optional<Found> await(Find find, base::Time deadline) KOLO_EXCLUDES(mutex_) {
    const base::MutexLock lock(mutex_);
    while (true) {
      if (std::optional<Found> found = find(member_)) return found;
      if (!wrong_.empty()) throw Error(ErrorCode::transport, wrong_);
      if (!changed_.wait_until(mutex_, deadline)) return find(member_);
    }
  }

  [[nodiscard]] MemberSide member() const KOLO_EXCLUDES(mutex_) {
    const base::MutexLock lock(mutex_);
    return member_;
  }

  /// Why a start of this generation cannot succeed; empty: it may.
  [[nodiscard]] std::string why_over(std::uint64_t generation) const KOLO_EXCLUDES(mutex_) {
    const base::MutexLock lock(mutex_);
    if (!wrong_.empty()) return wrong_;
    if (member_.generation() != generation || member_.waits()) return "this generation is over";
    return member_.trouble();
  }
  /// Readable while `why_over` of the present generation says something.
  [[nodiscard]] int trouble_fd() const noexcept { return trouble_.fd(); }

 private:
  void serve() noexcept {
    base::set_thread_name("kolo-member");
    std::vector<pollfd> all(2);
    while (true) {
      try {
        if (!serve_once(all)) return;
        if (::poll(all.data(), all.size(), -1) < 0 && errno != EINTR) base::throw_errno("poll", errno);
      } catch (const Error& error) {
        give_up(error.status().message());
        return;
      }
    }
  }

  /// False: there is nothing to do any more.
  bool serve_once(std::vector<pollfd>& all) KOLO_EXCLUDES(mutex_) {
    const base::MutexLock lock(mutex_);
    static_cast<void>(woken_.drain());
    if (ends_) return false;
    link_.pump();
    bool heard = false;
    while (const std::optional<Notice> notice = link_.take()) {
      if (const std::optional<Notice> answer = member_.hear(*notice)) link_.send(*answer);
      heard = true;
    }
    if (!link_.lost().empty() && !member_.farewell()) throw Error(ErrorCode::transport, kParentIsGone);
    if (member_.trouble().empty()) {
      static_cast<void>(trouble_.drain());
    } else {
      trouble_.signal();
    }
    if (heard) changed_.notify_all();
    all = {{woken_.fd(), POLLIN, 0}};
    if (link_.lost().empty()) all.push_back({link_.fd(), link_.events(), 0});
    return true;
  }

  void give_up(const std::string& why) noexcept KOLO_EXCLUDES(mutex_) {
    const base::MutexLock lock(mutex_);
    wrong_ = why;
    trouble_.signal();
    changed_.notify_all();
  }

  const base::EventFd woken_;
  const base::EventFd trouble_;
  mutable base::Mutex mutex_;
  base::ConditionVariable changed_;
  NoticeLink link_ KOLO_GUARDED_BY(mutex_);
  MemberSide member_ KOLO_GUARDED_BY(mutex_);
  std::string wrong_ KOLO_GUARDED_BY(mutex_);  // why the thread has ended
  bool ends_ KOLO_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

namespace {

template <class Link>
class KeeperStore final : public WatchedStore {
 public:
  KeeperStore(std::shared_ptr<Link> link, std::uint64_t generation) : link_(std::move(link)), generation_(generation) {}

  void set(const std::string& /*key*/, const std::string& value) override {
    require_current();
    written_ = value;
    link_->send([&](const MemberSide& member) { return member.entry(value); });
  }

  std::optional<std::string> get(const std::string& /*key*/, std::chrono::nanoseconds timeout) override {
    require_current();
    if (!written_.empty()) return written_;
    std::optional<std::string> entry = link_->template await<std::string>(
        [&](const MemberSide& member) -> std::optional<std::string> {
          if (member.generation() != generation_ || !member.trouble().empty()) return std::string();
          return member.entry_of_rank_0();
        },
        base::after(base::now(), timeout));
    require_current();
    return entry;
  }

  [[nodiscard]] int fd() const noexcept override { return link_->trouble_fd(); }
  [[nodiscard]] std::string why_over() const override { return link_->why_over(generation_); }

 private:
  void require_current() const {
    if (const std::string why = why_over(); !why.empty()) throw Error(ErrorCode::transport, why);
  }

  const std::shared_ptr<Link> link_;
  const std::uint64_t generation_;
  std::string written_;  // by this rank: the keeper passes it on to the others alone
};

ParentAddress parent_of(const base::Lookup& environment) {
  const std::string address = environment("KOLO_KEEPER").value_or("");
  if (address.empty()) {
    throw Error(ErrorCode::invalid_argument,
                "no kolo-run that lets ranks come and go has started this process: start it by kolo-run with --min-np, "
                "--max-np or --respawn");
  }
  return decode_parent(address);
}

}  // namespace

Options Generation::options(Options chosen) const {
  return std::move(chosen).with_setting("KOLO_JOB_KEY", key).with_store(store, rank, size);
}

Generations::Generations(const base::Lookup& environment)
    : job_key_(environment("KOLO_JOB_KEY").value_or("")), link_(std::make_shared<Link>(parent_of(environment))) {}

Generations::~Generations() = default;

std::optional<Generation> Generations::next() {
  link_->send([](MemberSide& member) { return member.ready(); });
  const auto has_place = [](const MemberSide& member) -> std::optional<bool> {
    if (member.farewell()) return false;
    return member.waits() ? std::nullopt : std::optional<bool>(true);
  };
  if (!*link_->await<bool>(has_place, base::Time::max())) return std::nullopt;
  const Notice place = link_->member().place();  // the same until this process says ready again
  Generation next{place.generation, place.rank, place.size, generation_key(job_key_, place.generation), nullptr};
  next.store = std::make_shared<KeeperStore<Link>>(link_, next.number);
  return next;
}

void Generations::started() {
  link_->send([](const MemberSide& member) { return member.started(); });
}
bool Generations::finish() {
  link_->send([](const MemberSide& member) { return member.done(); });
  const auto is_over = [](const MemberSide& member) -> std::optional<bool> {
    if (member.farewell()) return true;
    return member.change_is_due() ? std::optional<bool>(false) : std::nullopt;
  };
  return *link_->await<bool>(is_over, base::Time::max());
}
void Generations::leaving() {
  link_->send([](const MemberSide& member) { return member.leaving(); });
}
bool Generations::change_is_due() const { return link_->member().change_is_due(); }
std::string Generations::trouble() const { return link_->member().trouble(); }
std::string Generations::farewell() const { return link_->member().farewell().value_or(""); }

}  // namespace kolo::launch
