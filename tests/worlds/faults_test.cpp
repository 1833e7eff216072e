// SPDX-License-Identifier: Apache-2.0
//
// Worlds that break: a rank that never submits, leaves early, or throws. Every rank is told, by the same sentence;
// later calls fail at once; shutdown returns. Times are set so that a deadline passes soon; no verdict depends on how
// soon, but that nothing takes as long as `kPatience`.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <kolo/collectives.hpp>
#include <kolo/detail/leaving.hpp>
#include <kolo/info.hpp>

#include "errors.hpp"
#include "steps.hpp"
#include "tests/support/gate.hpp"
#include "world.hpp"

namespace {

using kolo::ErrorCode;
using kolo::ReduceOp;
using kolo::testing::Gate;
using kolo::testing::Gradients;
using kolo::testing::has;
using kolo::testing::run_in;
using kolo::testing::sentence_of;

constexpr std::chrono::seconds kPatience{60};

/// What was logged, by all ranks together.
class Records {
 public:
  kolo::LogSink sink() {
    return [this](const kolo::LogRecord& record) {
      const std::lock_guard lock(mutex_);
      records_.push_back(record);
      one_more_.notify_all();
    };
  }
  [[nodiscard]] std::vector<std::string> of(kolo::LogLevel level, const std::string& part) const {
    const std::lock_guard lock(mutex_);
    return find(level, part);
  }
  /// Until there is one.
  void wait_for(kolo::LogLevel level, const std::string& part) const {
    std::unique_lock lock(mutex_);
    one_more_.wait(lock, [&] { return !find(level, part).empty(); });
  }

 private:
  [[nodiscard]] std::vector<std::string> find(kolo::LogLevel level, const std::string& part) const {
    std::vector<std::string> found;
    for (const kolo::LogRecord& record : records_) {
      if (record.level == level && record.message.find(part) != std::string::npos) found.push_back(record.message);
    }
    return found;
  }

  mutable std::mutex mutex_;
  mutable std::condition_variable one_more_;
  std::vector<kolo::LogRecord> records_;
};

/// Comes to a gate when its thread ends, behind the end of the thread's context.
class ThreadEnd {
 public:
  ~ThreadEnd() {
    if (gate_ != nullptr) gate_->come();
  }
  void comes_to(Gate& gate) { gate_ = &gate; }

 private:
  Gate* gate_ = nullptr;
};
thread_local ThreadEnd thread_end;

/// Ranks, ranks per (virtual) node, and the rank that misbehaves.
using Form = std::tuple<int, int, int>;

class Faults : public testing::TestWithParam<Form> {
 protected:
  void SetUp() override { began_ = std::chrono::steady_clock::now(); }
  void TearDown() override { EXPECT_LT(std::chrono::steady_clock::now() - began_, kPatience); }

  [[nodiscard]] kolo::Options options() {
    return kolo::Options{}
        .with_setting("KOLO_RANKS_PER_NODE", std::to_string(std::get<1>(GetParam())))
        .with_setting("KOLO_LATCH_TIMEOUT_S", "30")
        .with_log_sink(records_.sink());
  }
  /// Deadlines that pass soon.
  [[nodiscard]] kolo::Options hasty() {
    return options().with_setting("KOLO_TIMEOUT_S", "1").with_setting("KOLO_STALL_WARNING_S", "0.2");
  }
  [[nodiscard]] int ranks() const { return std::get<0>(GetParam()); }
  [[nodiscard]] int odd() const { return std::get<2>(GetParam()); }
  [[nodiscard]] std::string odd_text() const { return "rank " + std::to_string(odd()); }

  /// That the world is broken, and says so the same way whatever is called.
  static void expect_broken(ErrorCode code, const std::string& sentence) {
    std::vector<float> x{1};
    EXPECT_EQ(sentence_of(code, [&] { kolo::allreduce("later", kolo::view(x)); }), sentence);
    EXPECT_EQ(sentence_of(code, [&] { (void)kolo::allreduce_async("later", kolo::view(x)); }), sentence);
    EXPECT_EQ(sentence_of(code, [&] { kolo::barrier(); }), sentence);
    EXPECT_EQ(sentence_of(code, [&] { kolo::end_step(); }), sentence);
    EXPECT_EQ(sentence_of(code, [&] { (void)kolo::prepare("later", kolo::Call::allreduce(kolo::view(x))); }), sentence);
    EXPECT_EQ(x[0], 1.0F);
  }

  Records records_;
  Gate gate_;
  std::chrono::steady_clock::time_point began_;
};

TEST_P(Faults, RankThatNeverSubmits) {
  run_in(ranks(), hasty(), [&] {
    EXPECT_EQ(kolo::allreduce(1, ReduceOp::sum), ranks());
    if (kolo::rank() == odd()) {
      gate_.wait_for(ranks() - 1);
      const std::string sentence = sentence_of(ErrorCode::timeout, [] { kolo::barrier(); });
      EXPECT_TRUE(has(sentence, {"tensor \"w\" has not completed within ", odd_text().c_str()}));
      return;
    }
    std::vector<float> x{1};
    kolo::Handle handle = kolo::allreduce_async("w", kolo::view(x));
    const std::string sentence = sentence_of(ErrorCode::timeout, [&] { handle.wait(); });
    EXPECT_TRUE(
        has(sentence, {"tensor \"w\" has not completed within ", (": " + odd_text() + " has not submitted it.").c_str(),
                       "The contents of the buffers in flight are undefined."}));
    EXPECT_EQ(handle.status()->message(), sentence);
    expect_broken(ErrorCode::timeout, sentence);
    gate_.come();
    kolo::current_context().shutdown();
    expect_broken(ErrorCode::timeout, sentence);
  });
  const std::vector<std::string> warnings = records_.of(kolo::LogLevel::warning, "\"w\" has waited for ");
  ASSERT_EQ(warnings.size(), 1U);
  EXPECT_TRUE(has(warnings[0], {(": " + odd_text() + " has not submitted it.").c_str()}));
}

TEST_P(Faults, DeadlineOfOneCall) {
  run_in(ranks(), options(), [&] {
    if (kolo::rank() == odd()) {
      gate_.wait_for(ranks() - 1);
      return;
    }
    std::vector<float> x{1};
    const auto soon = kolo::AllreduceOptions{}.with_timeout(std::chrono::milliseconds(300));
    const std::string sentence = sentence_of(ErrorCode::timeout, [&] { kolo::allreduce("w", kolo::view(x), soon); });
    EXPECT_TRUE(has(sentence, {"tensor \"w\"", (odd_text() + " has not submitted it").c_str()}));
    expect_broken(ErrorCode::timeout, sentence);
    gate_.come();
  });
  EXPECT_EQ(records_.of(kolo::LogLevel::warning, "").size(), 0U);
}

TEST_P(Faults, UnnamedCallThatOneRankNeverMakes) {
  run_in(ranks(), hasty(), [&] {
    for (int i = 0; i < 3; ++i) kolo::barrier();
    if (kolo::rank() == odd()) return gate_.wait_for(ranks() - 1);
    const std::string sentence = sentence_of(ErrorCode::timeout, [] { kolo::barrier(); });
    EXPECT_TRUE(has(
        sentence, {"unnamed call number 4 has not completed within", (odd_text() + " has not submitted it").c_str()}));
    gate_.come();
  });
}

/// By name, and without one in a group of its own order; as often as it asks, and nobody is warned.
TEST_P(Faults, AProgramAsksWhoIsLate) {
  run_in(ranks(), options(), [&] {
    std::vector<int> reversed;
    for (int rank = ranks() - 1; rank >= 0; --rank) reversed.push_back(rank);
    const kolo::Group group = kolo::Group::of(reversed);
    std::vector<float> x{1};
    std::vector<float> y{1};
    std::vector<float> z{1};
    if (kolo::rank() == odd()) gate_.wait_for(ranks() - 1);
    std::vector<kolo::Handle> handles;
    handles.push_back(kolo::allreduce_async("x", kolo::view(x)));
    handles.push_back(kolo::allreduce_async(group, kolo::view(y)));
    handles.push_back(kolo::allreduce_async(group, kolo::view(z)));
    if (kolo::rank() != odd()) {
      const std::vector<int> late{odd()};
      const std::vector<int> late_in_group{ranks() - 1 - odd()};
      const auto until = std::chrono::steady_clock::now() + kPatience;
      // What the others have submitted may be on its way yet.
      while (handles[2].late_ranks(kPatience) != late_in_group) ASSERT_LT(std::chrono::steady_clock::now(), until);
      for (int time = 0; time < 2; ++time) {
        EXPECT_EQ(handles[0].late_ranks(kPatience), late);
        EXPECT_EQ(handles[1].late_ranks(kPatience), late_in_group);
        EXPECT_EQ(handles[2].late_ranks(kPatience), late_in_group);
      }
      gate_.come();
    }
    kolo::wait_all(handles);
    for (const kolo::Handle& handle : handles) EXPECT_EQ(handle.late_ranks(kPatience), std::vector<int>());
    for (const std::vector<float>* sum : {&x, &y, &z}) EXPECT_EQ((*sum)[0], static_cast<float>(ranks()));
    EXPECT_EQ(kolo::metrics().stalls, 0U);
  });
  EXPECT_EQ(records_.of(kolo::LogLevel::warning, "").size(), 0U);
}

/// Reported once, completed after all.
TEST_P(Faults, SlowRankIsReportedAndForgiven) {
  run_in(ranks(), options().with_setting("KOLO_STALL_WARNING_S", "0.1"), [&] {
    for (int round = 0; round < 2; ++round) {
      const std::string name = "slow" + std::to_string(round);
      std::vector<float> x{1};
      if (kolo::rank() == odd()) {
        records_.wait_for(kolo::LogLevel::warning, name);
      }
      kolo::allreduce(name, kolo::view(x));
      EXPECT_EQ(x[0], static_cast<float>(ranks()));
    }
    kolo::barrier();
    EXPECT_GE(kolo::metrics().stalls, 2U);  // more, where the machine itself stalls
    kolo::barrier();
  });
  for (const char* name : {"\"slow0\"", "\"slow1\""}) {
    EXPECT_EQ(records_.of(kolo::LogLevel::warning, name).size(), 1U);
  }
}

/// In a planned batch one rank leaves out one tensor: the others' wait breaks the plan, the rest completes, and the
/// report names what is really missing.
TEST_P(Faults, OneTensorOfAPlannedBatchIsMissing) {
  run_in(ranks(), options().with_setting("KOLO_STALL_WARNING_S", "0.5"), [&] {
    Gradients gradients(10);
    kolo::Context& context = kolo::current_context();
    for (int step = 0; step < 5; ++step) {
      gradients.run(context, step);
      kolo::end_step();
    }
    std::vector<kolo::Handle> handles;
    for (std::size_t k = 0; k < 10; ++k) {
      if (k == 3 && kolo::rank() == odd()) continue;
      handles.push_back(gradients.submit(context, k, 5));
    }
    if (kolo::rank() == odd()) {
      records_.wait_for(kolo::LogLevel::warning, "\"t3\"");
      handles.push_back(gradients.submit(context, 3, 5));
    }
    kolo::wait_all(handles);
    for (std::size_t k = 0; k < 10; ++k) gradients.check(k, 5, kolo::size());
    kolo::end_step();
    for (int step = 6; step < 12; ++step) {
      gradients.run(context, step);
      kolo::end_step();
    }
  });
  for (const std::string& warning : records_.of(kolo::LogLevel::warning, "has waited for")) {
    EXPECT_TRUE(has(warning, {"\"t3\"", (": " + odd_text() + " has not submitted it.").c_str()}));
  }
  EXPECT_EQ(records_.of(kolo::LogLevel::warning, "\"t3\"").size(), 1U);
}

TEST_P(Faults, RankThatLeavesBeforeTheOthersSubmit) {
  run_in(ranks(), options(), [&] {
    Gradients gradients(6);
    for (int step = 0; step < 5; ++step) {
      gradients.run(kolo::current_context(), step);
      kolo::end_step();
    }
    if (kolo::rank() == odd()) return;
    std::vector<float> x{1};
    const std::string has_left = odd_text() + " has shut down and will not submit ";
    EXPECT_EQ(sentence_of(ErrorCode::rank_lost, [&] { kolo::allreduce("new", kolo::view(x)); }),
              has_left + "tensor \"new\".");
    EXPECT_EQ(sentence_of(ErrorCode::rank_lost, [&] { gradients.submit(kolo::current_context(), 2, 5).wait(); }),
              has_left + "tensor \"t2\".");
    EXPECT_EQ(sentence_of(ErrorCode::rank_lost, [&] { kolo::barrier(); }), has_left + "unnamed call number 1.");
  });
}

/// An error that names the one that left unwinds a second rank past a handle that is open: the others are told nothing
/// of the second one, and what its handle stands for completes.
TEST_P(Faults, HandleThatUnwindsBecauseARankHasLeft) {
  if (ranks() < 3) return;
  const int second = (odd() + 1) % ranks();
  std::vector<float> memory(static_cast<std::size_t>(ranks()), 1.0F);
  run_in(ranks(), options(), [&] {
    float& x = memory[static_cast<std::size_t>(kolo::rank())];
    const auto start = [&x] { return kolo::allreduce_async("w", kolo::view(&x, kolo::Shape{})); };
    const auto fail = [&] {
      float lone = 1;
      EXPECT_EQ(sentence_of(ErrorCode::rank_lost, [&] { kolo::allreduce("v", kolo::view(&lone, kolo::Shape{})); }),
                odd_text() + " has shut down and will not submit tensor \"v\".");
    };
    EXPECT_EQ(kolo::allreduce(1, ReduceOp::sum), ranks());
    if (kolo::rank() == odd()) return void(start());
    if (kolo::rank() == second) {
      EXPECT_THROW(
          {
            const kolo::Handle handle = start();
            fail();
            gate_.come();
            throw std::out_of_range("told");
          },
          std::out_of_range);
      return;
    }
    gate_.wait_for(1);
    for (int i = 0; i < 50; ++i) fail();  // meanwhile the second one unwinds
    start().wait();
  });
  EXPECT_EQ(memory, std::vector<float>(memory.size(), static_cast<float>(ranks())));
  EXPECT_EQ(records_.of(kolo::LogLevel::error, "").size(), 0U);
}

/// Likewise a rank that leaves the job by that error: it is not the one to be named.
TEST_P(Faults, RankThatThrowsBecauseARankHasLeft) {
  const int second = (odd() + 1) % ranks();
  const int per_node = std::get<1>(GetParam());
  if (ranks() < 3 || second == 0 || (per_node != 0 && second % per_node == 0)) return;  // it must lead nobody
  EXPECT_THROW(run_in(ranks(), options(),
                      [&] {
                        std::vector<float> x{1};
                        EXPECT_EQ(kolo::allreduce(1, ReduceOp::sum), ranks());
                        if (kolo::rank() == odd()) return;
                        if (kolo::rank() == second) {
                          thread_end.comes_to(gate_);
                        } else {
                          gate_.wait_for(1);
                        }
                        EXPECT_EQ(sentence_of(ErrorCode::rank_lost, [&] { kolo::allreduce("v", kolo::view(x)); }),
                                  odd_text() + " has shut down and will not submit tensor \"v\".");
                        if (kolo::rank() == second) throw std::runtime_error("told");
                      }),
               kolo::Error);
  EXPECT_EQ(records_.of(kolo::LogLevel::error, "").size(), 0U);
}

/// The others have given up waiting for it, and are gone: nothing is lost by that, and the rank can leave as well.
/// (Of a leader: that its own leader has gone is heard between processes alone.)
TEST_P(Faults, RankThatLeavesAfterTheOthersHaveGone) {
  const int per_node = std::get<1>(GetParam());
  if (odd() != 0 && (per_node == 0 || odd() % per_node != 0)) return;
  run_in(ranks(), options().with_setting("KOLO_TIMEOUT_S", "0.3"), [&] {
    if (kolo::rank() != odd()) return thread_end.comes_to(gate_);
    gate_.wait_for(ranks() - 1);
    std::vector<float> x{1};
    const auto patient = kolo::AllreduceOptions{}.with_timeout(kPatience);
    const std::string sentence =
        sentence_of(ErrorCode::rank_lost, [&] { kolo::allreduce("late", kolo::view(x), patient); });
    EXPECT_TRUE(has(sentence, {" shut down"}));
  });
  EXPECT_EQ(records_.of(kolo::LogLevel::error, "").size(), 0U);
}

TEST_P(Faults, RankThatLeavesWhileTheOthersWait) {
  run_in(ranks(), options(), [&] {
    EXPECT_EQ(kolo::allreduce(1, ReduceOp::sum), ranks());
    if (kolo::rank() == odd()) return gate_.wait_for(ranks() - 1);
    std::vector<std::vector<float>> x(5, std::vector<float>(100));
    std::vector<kolo::Handle> handles;
    for (std::size_t k = 0; k < x.size(); ++k) {
      handles.push_back(kolo::allreduce_async("w" + std::to_string(k), kolo::view(x[k])));
    }
    gate_.come();
    for (std::size_t k = 0; k < x.size(); ++k) {
      EXPECT_EQ(sentence_of(ErrorCode::rank_lost, [&] { handles[k].wait(); }),
                odd_text() + " has shut down and will not submit tensor \"w" + std::to_string(k) + "\".");
    }
  });
}

TEST_P(Faults, RankThatThrowsWhileTheOthersWait) {
  const std::string wanted = odd_text() +
                             " left the job because of an exception: its code threw: out of luck. The contents of the "
                             "buffers in flight are undefined.";
  EXPECT_EQ(sentence_of(ErrorCode::user_exception,
                        [&] {
                          run_in(ranks(), options(), [&] {
                            EXPECT_EQ(kolo::allreduce(1, ReduceOp::sum), ranks());
                            if (kolo::rank() == odd()) {
                              gate_.wait_for(ranks() - 1);
                              throw std::runtime_error("out of luck");
                            }
                            std::vector<float> x{1};
                            kolo::Handle handle = kolo::allreduce_async("w", kolo::view(x));
                            gate_.come();
                            EXPECT_EQ(sentence_of(ErrorCode::user_exception, [&] { handle.wait(); }), wanted);
                            expect_broken(ErrorCode::user_exception, wanted);
                            kolo::current_context().shutdown();
                          });
                        }),
            odd_text() + ": out of luck");
}

TEST_P(Faults, RankThatSaysWhyItAbandonsTheOthers) {
  const std::string wanted =
      odd_text() + " left the job because of an exception: no such file: digits.bin. The contents of the buffers "
                   "in flight are undefined.";
  run_in(ranks(), options(), [&] {
    EXPECT_EQ(kolo::allreduce(1, ReduceOp::sum), ranks());
    if (kolo::rank() == odd()) {
      gate_.wait_for(ranks() - 1);
      kolo::abandon("no such file: digits.bin");
      kolo::abandon("once more");
      return;
    }
    std::vector<float> x{1};
    kolo::Handle handle = kolo::allreduce_async("w", kolo::view(x));
    gate_.come();
    EXPECT_EQ(sentence_of(ErrorCode::user_exception, [&] { handle.wait(); }), wanted);
    expect_broken(ErrorCode::user_exception, wanted);
  });
}

/// The others do not wait for Kolo when it happens: their next call tells them.
TEST_P(Faults, RankThatThrowsWhileTheOthersCompute) {
  EXPECT_EQ(sentence_of(ErrorCode::mismatch,
                        [&] {
                          run_in(ranks(), options(), [&] {
                            if (kolo::rank() == odd()) throw kolo::Error(ErrorCode::mismatch, "no two alike");
                            while (true) kolo::barrier();
                          });
                        }),
            odd_text() + ": no two alike");
}

/// In the middle of large reductions, whose buffers live on.
TEST_P(Faults, RankThatThrowsInTheMiddleOfLargeReductions) {
  std::vector<std::vector<float>> memory(static_cast<std::size_t>(ranks()), std::vector<float>(1 << 20, 1.0F));
  EXPECT_EQ(sentence_of(ErrorCode::user_exception,
                        [&] {
                          run_in(ranks(), options(), [&] {
                            std::vector<float>& x = memory[static_cast<std::size_t>(kolo::rank())];
                            for (int i = 0;; ++i) {
                              kolo::Handle handle = kolo::allreduce_async("big", kolo::view(x));
                              if (i == 3 && kolo::rank() == odd()) throw 42;
                              handle.wait();
                            }
                          });
                        }),
            odd_text() + ": an exception that is no std::exception");
}

TEST_P(Faults, EverybodyThrows) {
  for (int round = 0; round < 10; ++round) {
    const std::string sentence = sentence_of(ErrorCode::user_exception, [&] {
      run_in(ranks(), options(), [&] {
        EXPECT_EQ(kolo::allreduce(1, ReduceOp::sum), ranks());
        throw std::runtime_error("all of us");
      });
    });
    EXPECT_TRUE(has(sentence, {"rank ", ": all of us"}));
  }
}

/// Every way of being told.
TEST_P(Faults, EveryHandleIsTold) {
  EXPECT_THROW(
      run_in(ranks(), options(),
             [&] {
               std::vector<std::vector<float>> x(6, std::vector<float>(10));
               std::vector<float> p(10);
               kolo::Prepared prepared = kolo::prepare("p", kolo::Call::allreduce(kolo::view(p)));
               if (kolo::rank() == odd()) {
                 gate_.wait_for(ranks() - 1);
                 throw std::runtime_error("enough");
               }
               std::vector<kolo::Handle> handles;
               for (std::size_t k = 0; k < x.size(); ++k) {
                 handles.push_back(kolo::allreduce_async("x" + std::to_string(k), kolo::view(x[k])));
               }
               handles.push_back(prepared.start());
               std::atomic<int> called{0};
               handles[4].on_done([&](const kolo::Status& status) {
                 EXPECT_EQ(status.code(), ErrorCode::user_exception);
                 called.fetch_add(1);
               });
               handles[5] = kolo::Handle();  // nobody asks any more
               kolo::Context& context = kolo::current_context();
               std::atomic<int> threads{0};
               std::vector<std::thread> queue;  // unnamed calls, one after the other
               for (int i = 0; i < 3; ++i) {
                 queue.emplace_back([&] {
                   threads.fetch_add(1);
                   EXPECT_NE(sentence_of(ErrorCode::user_exception, [&] { kolo::barrier(context); }).find(odd_text()),
                             0U + std::string::npos);
                 });
               }
               while (threads.load() < 3) std::this_thread::yield();
               gate_.come();
               EXPECT_THROW(handles[0].wait(), kolo::Error);
               EXPECT_THROW((void)handles[1].wait_for(kPatience), kolo::Error);
               while (!handles[2].done()) std::this_thread::yield();
               EXPECT_EQ(handles[2].status()->code(), ErrorCode::user_exception);
               EXPECT_THROW(kolo::wait_all(kolo::Span<kolo::Handle>(handles.data() + 3, 1)), kolo::Error);
               while (called.load() == 0) std::this_thread::yield();
               EXPECT_THROW(handles[6].wait(), kolo::Error);
               EXPECT_THROW((void)prepared.start(), kolo::Error);
               for (std::thread& thread : queue) thread.join();
               EXPECT_EQ(called.load(), 1);
             }),
      kolo::Error);
}

/// The rank that decides is gone (it ran out of patience): the others latch by themselves.
TEST_P(Faults, ShutdownDoesNotWaitForEver) {
  if (odd() != 0) {  // rank 0 leaves in time, the odd one not
    run_in(ranks(), hasty(), [&] {
      if (kolo::rank() == odd()) return gate_.wait_for(ranks() - 1);
      kolo::current_context().shutdown();
      gate_.come();
    });
    EXPECT_GE(records_.of(kolo::LogLevel::warning, "shutdown: not all ranks have left within 1").size(), 1U);
    return;
  }
  run_in(ranks(), hasty().with_setting("KOLO_LATCH_TIMEOUT_S", "0.2"), [&] {
    if (kolo::rank() == 0) {  // leaves after a second, with nobody else
      kolo::current_context().shutdown();
      gate_.come();
      return;
    }
    gate_.wait_for(1);
    std::vector<float> x{1};
    EXPECT_THROW(kolo::allreduce("w", kolo::view(x)), kolo::Error);
  });
}

/// As kolo_torch does at the end of a program that asked for Gloo. The rank that has left lives on. The others' calls
/// name it, their `shutdown` waits for nobody, and nobody is warned.
TEST_P(Faults, ARankThatLeavesEarly) {
  run_in(ranks(), options(), [&] {
    EXPECT_EQ(kolo::allreduce(1, ReduceOp::sum), ranks());
    if (kolo::rank() == odd()) {
      kolo::detail::leave_early(kolo::current_context());
      gate_.come();
      return gate_.wait_for(ranks());
    }
    const std::string left = odd_text() + " has shut down";
    for (int call = 0; call < 2; ++call) {
      if (call == 1) gate_.wait_for(1);  // at first it may still serve the others
      const std::string sentence = sentence_of(ErrorCode::rank_lost, [] { kolo::barrier(); });
      EXPECT_EQ(sentence.find(left), 0U) << sentence;
    }
    kolo::current_context().shutdown();
    gate_.come();
  });
  EXPECT_EQ(records_.of(kolo::LogLevel::warning, "shutdown"), std::vector<std::string>());
}

/// What it has started and not waited for is waited for; the others may be late.
TEST_P(Faults, ARankThatLeavesEarlyEndsWhatIsOpen) {
  run_in(ranks(), options(), [&] {
    std::vector<float> x{1};
    if (kolo::rank() == odd()) {
      const kolo::Handle handle = kolo::allreduce_async("x", kolo::view(x), ReduceOp::sum);
      gate_.come();
      kolo::detail::leave_early(kolo::current_context());
      EXPECT_EQ(x[0], static_cast<float>(ranks()));
      return gate_.come();
    }
    gate_.wait_for(1);
    kolo::allreduce("x", kolo::view(x), ReduceOp::sum);
    gate_.wait_for(2);
    kolo::current_context().shutdown();
  });
}

/// A rank that ends without a word, in the second in which one that has left waits for the others.
TEST_P(Faults, ALossBesideARankThatLeavesEarly) {
  const int lost = odd() == 0 ? 1 : 0;
  EXPECT_NE(sentence_of(ErrorCode::user_exception,
                        [&] {
                          run_in(ranks(), options(), [&] {
                            EXPECT_EQ(kolo::allreduce(1, ReduceOp::sum), ranks());
                            if (kolo::rank() == odd()) return kolo::detail::leave_early(kolo::current_context());
                            if (kolo::rank() == lost) throw std::runtime_error("no such file");
                            EXPECT_THROW(kolo::barrier(), kolo::Error);
                          });
                        })
                .find("no such file"),
            std::string::npos);
}

INSTANTIATE_TEST_SUITE_P(Forms, Faults,
                         testing::Values(Form{2, 0, 0}, Form{2, 0, 1}, Form{4, 0, 2}, Form{4, 2, 0}, Form{4, 2, 1},
                                         Form{4, 2, 2}, Form{4, 2, 3}, Form{3, 1, 0}, Form{3, 1, 2}, Form{5, 2, 4}),
                         [](const testing::TestParamInfo<Form>& info) {
                           return std::to_string(std::get<0>(info.param)) + "ranks" +
                                  std::to_string(std::get<1>(info.param)) + "pernodeOdd" +
                                  std::to_string(std::get<2>(info.param));
                         });

}  // namespace
