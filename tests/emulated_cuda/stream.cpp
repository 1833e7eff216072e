// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include "base/check.hpp"
#include "machine.hpp"

namespace kolo::emulated {

Stream::Stream(int stream_device, Kind stream_kind, int stream_priority, unsigned stream_flags, unsigned stream_number)
    : device(stream_device), kind(stream_kind), priority(stream_priority), flags(stream_flags), number(stream_number),
      actor_(Machine::instance().new_actor()), thread_([this] { run(); }) {}

Stream::~Stream() { thread_.join(); }

std::string Stream::name() const {
  const char* which = kind == Kind::legacy ? "the legacy default stream" : "stream ";
  return which + (kind == Kind::legacy ? std::string() : std::to_string(number)) + " of device " +
         std::to_string(device);
}

std::string Stream::describe() const {
  std::string text = name() + ": " + state;
  if (!queue_.empty()) {
    text += ", " + to_string(*queue_.front().operation) + ", " + std::to_string(queue_.size() - 1) + " more behind it";
  }
  return text;
}

void Stream::enqueue(Op op) {
  Machine& machine = Machine::instance();
  const unsigned most = machine.config.lateness;
  if (most > 0) {
    // Half are not held back at all, most of the rest briefly, some for long.
    const std::uint64_t drawn = machine.draw(number, enqueued_);
    const std::uint64_t span = drawn % 8 < 4 ? 1 : drawn % 8 < 7 ? 4 : most;
    op.hold = static_cast<unsigned>((drawn >> 8) % span);
  }
  ++enqueued_;
  last = op.completion;
  queue_.push_back(std::move(op));
  wake_.notify_all();
}

void Stream::close(bool at_once) {
  closing_ = true;
  cut_ = cut_ || at_once;
  wake_.notify_all();
}

void Stream::run() {
  Machine& machine = Machine::instance();
  this_thread().stream = this;
  Lock lock(machine.mutex);
  for (;;) {
    wake_.wait(lock, [this] { return closing_ || !queue_.empty(); });
    if (queue_.empty()) break;
    execute(lock, queue_.front());
    machine.complete(queue_.front().completion, clock_);
    queue_.pop_front();
    if (queue_.empty()) {
      state = "idle";
      machine.progressed.notify_all();
    }
  }
  finished = true;
}

void Stream::hold(Lock& lock, const Op& op) {
  constexpr unsigned kYieldsForADoing = 2;  // when nobody else does anything, time passes all the same
  const Machine& machine = Machine::instance();
  state = "held back";
  const std::uint64_t until = machine.doings + op.hold;
  for (unsigned yields = 0; !cut_ && machine.doings + yields / kYieldsForADoing < until; ++yields) {
    lock.unlock();
    std::this_thread::yield();
    lock.lock();
  }
}

void Stream::begin(const Op& op, const std::vector<Touch>& touches) {
  clock_.join(op.submitted);
  for (const CompletionPtr& earlier : op.after) clock_.join(earlier->clock);
  const std::uint64_t time = clock_.tick(actor_);
  for (const Touch& touch : touches) {
    Machine::instance().enter({actor_, time, op.operation, touch.write}, touch, clock_);
  }
}

void Stream::execute(Lock& lock, Op& op) {
  Machine& machine = Machine::instance();
  state = "waiting for other streams";
  for (const CompletionPtr& earlier : op.after) {
    if (!earlier->done) earlier->waiters.push_back(&wake_);
    wake_.wait(lock, [&] { return earlier->done; });
  }
  hold(lock, op);
  if (cut_) return;
  state = "running";
  std::vector<Touch> touches = op.touches;
  if (op.find_touches) {
    std::vector<RawTouch> found;
    machine.move_data(lock, [&] { found = op.find_touches(); });
    const std::string what = to_string(*op.operation);
    const std::size_t known = touches.size() + found.size();
    for (const RawTouch& touch : found) machine.add_touch(touches, touch, what);
    // It would fault, and nothing would be learned that is not reported.
    if (touches.size() != known) {
      machine.report(Report::Kind::memory, what + " would touch memory that the device cannot reach");
      return;
    }
  }
  begin(op, touches);
  this_thread().op = &op;
  this_thread().touches = &touches;
  if (op.occupy) {
    state = "in a collective";
    occupied = true;
    op.occupy(lock, *this);
    occupied = false;
  } else if (op.on_host) {
    this_thread().in_host_function = true;
    lock.unlock();
    op.body();
    lock.lock();
    this_thread().in_host_function = false;
  } else if (op.body) {
    machine.move_data(lock, op.body);
  }
  this_thread().touches = nullptr;
  this_thread().op = nullptr;
}

}  // namespace kolo::emulated
