// SPDX-License-Identifier: Apache-2.0
#include "rank.hpp"

#include <algorithm>
#include <chrono>
#include <exception>
#include <functional>
#include <future>
#include <memory>
#include <numeric>
#include <thread>
#include <utility>
#include <vector>

#include <kolo/gradient_arena.hpp>

namespace kolo::soak {

using testing::Wrong;

namespace {

constexpr std::uint64_t kUnnamed = 99, kOwn = 100;

void check(InFlight& one) {
  try {
    one.check();
  } catch (const Wrong& wrong) {
    throw Wrong(describe(one.operation()) + ": " + wrong.what());
  }
}

/// Runs `part(0)` ... `part(count - 1)`, each on a thread of its own; the first exception is rethrown.
void on_threads(std::size_t count, const std::function<void(std::size_t)>& part) {
  std::vector<std::exception_ptr> thrown(count);
  const auto guarded = [&](std::size_t i) {
    try {
      part(i);
    } catch (...) {
      thrown[i] = std::current_exception();
    }
  };
  std::vector<std::thread> threads;
  for (std::size_t i = 1; i < count; ++i) threads.emplace_back(guarded, i);
  guarded(0);
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& one : thrown) {
    if (one) std::rethrow_exception(one);
  }
}

void wait_by_callback(Handle& handle) {
  auto done = std::make_shared<std::promise<void>>();
  handle.on_done([done](const Status&) { done->set_value(); });
  done->get_future().wait();
  handle.wait();
}

/// Looks again and again; less often where it lasts, say because a rank is stopped.
void wait_by_looking(const Handle& handle) {
  constexpr int kYields = 1000;
  for (int looks = 0; !handle.done(); ++looks) {
    if (looks < kYields) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
}

void wait_for_one(Handle& handle, std::int64_t way) {
  switch (way) {
  case 0:
    wait_by_looking(handle);
    return handle.wait();
  case 1:
    for (std::chrono::microseconds patience(50); !handle.wait_for(patience);) patience *= 2;
    return;
  case 2:
    return wait_by_callback(handle);
  default:
    return handle.wait();
  }
}

}  // namespace

/// An arena, cut into cells that one tensor has at a time. It lives as long as one of them is in use.
class Cells {
 public:
  explicit Cells(Context& context)
      : arena_(context, kCells * kCellBytes),
        begin_(static_cast<std::byte*>(arena_.allocate(DType::uint8, Shape{kCells * kCellBytes}).data())) {
    for (std::int64_t cell = 0; cell < kCells; ++cell) free_.push_back(begin_ + cell * kCellBytes);
  }

  /// Null: it is too long, or all are in use.
  static std::shared_ptr<std::byte> take(const std::shared_ptr<Cells>& cells, std::size_t bytes) {
    if (bytes > kCellBytes || cells->free_.empty()) return nullptr;
    std::byte* cell = cells->free_.back();
    cells->free_.pop_back();
    return {cell, [cells](std::byte* done) { cells->free_.push_back(done); }};
  }

 private:
  static constexpr std::int64_t kCells = 32;
  static constexpr std::int64_t kCellBytes = 1 << 18;
  GradientArena arena_;
  std::byte* begin_;
  std::vector<std::byte*> free_;
};

Rank::Rank(Context& context, std::uint64_t seed, std::uint64_t world, const Limits& limits,
           std::function<void()> before_call)
    : context_(context), before_call_(std::move(before_call)), seed_(seed), world_(world),
      cells_(std::make_shared<Cells>(context)) {
  Random own = random_of(seed, kOwn, world, static_cast<std::uint64_t>(context.rank()));
  for (const Operation& operation : prepared_of(seed, world, limits)) {
    auto one = make(operation, own);
    one->prepare();
    prepared_.emplace(operation.name, std::move(one));
  }
}

std::unique_ptr<InFlight> Rank::make(const Operation& operation, Random& own) {
  const auto room = [&](std::size_t bytes) { return Cells::take(cells_, bytes); };
  return std::make_unique<InFlight>(context_, operation, own, chance(own, 30) ? testing::Room(room) : nullptr);
}

/// The memory for an operation; what was left open under its name comes first.
std::unique_ptr<InFlight> Rank::take(const Operation& operation, Random& own) {
  if (const auto late = late_.find(operation.name); late != late_.end()) {
    wait_in(describe(operation), [&] { late->second->handle().wait(); });
    check(*late->second);
    put_back(std::move(late->second));
    late_.erase(late);
  }
  if (operation.form != testing::Form::prepared) return make(operation, own);
  return std::move(prepared_.at(operation.name));
}

void Rank::put_back(std::unique_ptr<InFlight> one) {
  if (one->operation().form == testing::Form::prepared) prepared_.at(one->operation().name) = std::move(one);
}

void Rank::submit(Members& members, const Step& step, Random& own) {
  std::vector<std::size_t> order(members.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::shuffle(order.begin(), order.end(), own);
  const std::size_t threads = chance(own, 15) ? 2 + own() % 2 : 1;
  on_threads(threads, [&](std::size_t thread) {
    for (std::size_t i = thread; i < order.size(); i += threads) {
      before_call_();
      members[order[i]]->submit(step.operations[order[i]].salt);
    }
  });
}

void Rank::wait(Members& members, Random& own) {
  std::shuffle(members.begin(), members.end(), own);
  if (chance(own, 30)) {
    std::vector<Handle> handles;
    for (const auto& one : members) {
      if (!one->brings_result()) handles.push_back(std::move(one->handle()));
    }
    before_call_();
    wait_in("all of a step", [&] { wait_all(handles); });
    for (const auto& one : members) {
      if (one->brings_result()) wait_in(describe(one->operation()), [&] { one->handle().wait(); });
    }
    return;
  }
  const std::int64_t way = draw(own, 8);
  const std::size_t threads = chance(own, 15) ? 2 + own() % 2 : 1;
  on_threads(threads, [&](std::size_t thread) {
    for (std::size_t i = thread; i < members.size(); i += threads) {
      before_call_();
      wait_in(describe(members[i]->operation()), [&] { wait_for_one(members[i]->handle(), way); });
    }
  });
}

/// Their order is their name, so all ranks make them in the same one. Inputs are spoilt as soon as a call has returned.
void Rank::run_unnamed(int calls, std::uint64_t number) {
  Random same = random_of(seed_, kUnnamed, world_, number);
  const int ranks = context_.size();
  const int rank = context_.rank();
  const auto value = [](int of, std::int64_t i) { return static_cast<std::int32_t>(of * 100003 + i); };
  for (int call = 0; call < calls; ++call) {
    const std::int64_t elements = draw(same, chance(same, 50) ? 100 : 20000);
    const auto input = [&](int of, std::int64_t count) {
      std::vector<std::int32_t> in(static_cast<std::size_t>(count));
      for (std::int64_t i = 0; i < count; ++i) in[static_cast<std::size_t>(i)] = value(of, i);
      return in;
    };
    const auto expect = [](bool good, const char* what) {
      if (!good) throw Wrong(std::string(what) + " without a name");
    };
    before_call_();
    switch (draw(same, 6)) {
    case 0: {
      std::vector<std::int32_t> x = input(rank, elements);
      wait_in("an allreduce without a name", [&] { allreduce(context_, view(x)); });
      bool good = true;
      for (std::int64_t i = 0; i < elements; ++i)
        good = good && x[static_cast<std::size_t>(i)] == ranks * i + 100003 * (ranks * (ranks - 1) / 2);
      expect(good, "an allreduce");
      break;
    }
    case 1: {
      const int root = static_cast<int>(draw(same, ranks));
      std::vector<std::int32_t> x = input(rank, elements);
      wait_in("a broadcast without a name", [&] { broadcast(context_, view(x), root); });
      expect(x == input(root, elements), "a broadcast");
      x.assign(x.size(), -1);
      break;
    }
    case 2: {
      std::vector<std::int32_t> in = input(rank, elements + rank);
      std::vector<std::int32_t> wanted;
      for (int of = 0; of < ranks; ++of) {
        const std::vector<std::int32_t> part = input(of, elements + of);
        wanted.insert(wanted.end(), part.begin(), part.end());
      }
      std::vector<std::int32_t> out(wanted.size(), -1);
      wait_in("an allgather without a name", [&] { allgather_into(context_, const_view(in), view(out)); });
      in.assign(in.size(), -1);
      expect(out == wanted, "an allgather");
      break;
    }
    case 3: {
      std::vector<std::int32_t> in = input(rank, elements * ranks);
      std::vector<std::int32_t> out(in.size(), -1);
      wait_in("an alltoall without a name", [&] { alltoall_into(context_, const_view(in), view(out)); });
      in.assign(in.size(), -1);
      bool good = true;
      for (int of = 0; of < ranks; ++of)
        for (std::int64_t i = 0; i < elements; ++i)
          good = good && out[static_cast<std::size_t>(of * elements + i)] == value(of, rank * elements + i);
      expect(good, "an alltoall");
      break;
    }
    case 4: {
      std::vector<std::int32_t> in = input(rank, elements * ranks);
      std::vector<std::int32_t> out(static_cast<std::size_t>(elements), -1);
      wait_in("a reduce_scatter without a name", [&] { reduce_scatter_into(context_, const_view(in), view(out)); });
      in.assign(in.size(), -1);
      bool good = true;
      for (std::int64_t i = 0; i < elements; ++i)
        good = good &&
               out[static_cast<std::size_t>(i)] == ranks * (rank * elements + i) + 100003 * (ranks * (ranks - 1) / 2);
      expect(good, "a reduce_scatter");
      break;
    }
    default:
      wait_in("a barrier without a name", [&] { barrier(context_); });
    }
  }
}

void Rank::wait_in(const std::string& what, const std::function<void()>& call) {
  const auto begin = std::chrono::steady_clock::now();
  call();
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  const std::lock_guard lock(mutex_);
  if (seconds > longest_.seconds) longest_ = {seconds, what, step_};
}

Wait Rank::longest_wait() const {
  const std::lock_guard lock(mutex_);
  return longest_;
}

void Rank::run(const Step& step, std::uint64_t number) {
  step_ = number;
  Random own = random_of(seed_, kOwn + 1 + static_cast<std::uint64_t>(context_.rank()), world_, number);
  if (step.new_arena) cells_ = std::make_shared<Cells>(context_);
  Members members;
  for (const Operation& operation : step.operations) members.push_back(take(operation, own));
  submit(members, step, own);
  for (auto& one : members) {
    if (!chance(own, 10)) continue;
    std::string name = one->operation().name;
    late_.emplace(std::move(name), std::move(one));
  }
  members.erase(std::remove(members.begin(), members.end(), nullptr), members.end());
  wait(members, own);
  for (auto& one : members) {
    check(*one);
    put_back(std::move(one));
  }
  run_unnamed(step.unnamed, number);
  if (step.ends) end_step(context_);
}

void Rank::finish() {
  for (auto& [name, one] : late_) {
    wait_in(describe(one->operation()), [&, handle = &one->handle()] { handle->wait(); });
    check(*one);
  }
  late_.clear();
  prepared_.clear();
  cells_.reset();
  barrier(context_);
}

}  // namespace kolo::soak
