// SPDX-License-Identifier: Apache-2.0
#include "engine/driver.hpp"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <future>
#include <set>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "base/mutex.hpp"
#include "tests/support/lone_link.hpp"

namespace kolo::engine {
namespace {

/// Whether the table has this move.
bool is_legal(Driver::State from, Driver::State to) {
  for (const Driver::Move& move : Driver::kMoves) {
    if (move.from == from && move.to == to) return true;
  }
  return false;
}

using State = Driver::State;

constexpr std::array<State, Driver::kStates> kAll{State::asleep,  State::napping, State::beside, State::background,
                                                  State::falling, State::called,  State::leaving};

// ---------------------------------------------------------------- the table

TEST(DriverTable, HasTheseMovesAndNoOthers) {
  const std::set<std::pair<State, State>> wanted{
      {State::asleep, State::background},  {State::asleep, State::napping},     {State::asleep, State::called},
      {State::napping, State::background}, {State::napping, State::called},     {State::beside, State::background},
      {State::beside, State::called},      {State::background, State::beside},  {State::background, State::falling},
      {State::background, State::called},  {State::falling, State::background}, {State::falling, State::asleep},
      {State::falling, State::napping},    {State::called, State::background},  {State::called, State::leaving},
      {State::leaving, State::asleep},     {State::leaving, State::napping},
  };
  for (const State from : kAll) {
    for (const State to : kAll) {
      EXPECT_EQ(is_legal(from, to), wanted.count({from, to}) == 1)
          << static_cast<int>(from) << " to " << static_cast<int>(to);
    }
  }
  EXPECT_EQ(Driver::kMoves.size(), wanted.size()) << "none stands there twice";
  for (const Driver::Move& move : Driver::kMoves) EXPECT_EQ(move.why.back(), '.') << "each has a sentence";
}

TEST(DriverTable, SaysOnceWhatEachTagOfThePollerMeans) {
  std::set<std::uint64_t> tags;
  for (const Driver::Wake& wake : Driver::kWakes) {
    EXPECT_TRUE(tags.insert(wake.tag).second) << wake.who << " stands there twice";
    EXPECT_EQ(wake.why.back(), '.') << wake.who;
  }
  EXPECT_EQ(tags, (std::set<std::uint64_t>{kNoTag, kWakeTag, kControlTag, kAlarmTag, kTransportTag, kLivenessTag}));
}

/// Whatever happens, everybody can go back to sleep, and the background thread can be had again.
TEST(DriverTable, LeadsFromEveryStateToEveryOther) {
  for (const State from : kAll) {
    std::set<State> reached{from};
    for (std::size_t before = 0; before != reached.size();) {
      before = reached.size();
      for (const Driver::Move& move : Driver::kMoves) {
        if (reached.count(move.from) == 1) reached.insert(move.to);
      }
    }
    EXPECT_EQ(reached.size(), kAll.size()) << "from " << static_cast<int>(from);
  }
}

// ---------------------------------------------------------------- the driver

constexpr control::BoardShape shape() {
  control::BoardShape shape;
  shape.ranks = 1;
  shape.ids = 8;
  shape.message_ring_bytes = 4096;
  shape.log_ring_bytes = 4096;
  return shape;
}

class DriverTest : public ::testing::Test {
 protected:
  /// Brings a driver of one thread, this one, to a state, and takes its lock. (Which way it takes the lock depends on
  /// the state, which the analysis cannot follow.)
  void bring_to(State state) KOLO_ACQUIRE(kDriving) KOLO_NO_THREAD_SAFETY_ANALYSIS {
    if (state == State::background || state == State::falling) {
      driver_.wake_up();
    } else if (state == State::called || state == State::leaving) {
      driver_.take_over();
    } else {
      EXPECT_TRUE(driver_.try_look());
    }
    if (state == State::napping) driver_.nap(base::now() + std::chrono::hours(1));
    if (state == State::falling) driver_.fall({});
    if (state == State::leaving) driver_.leave({});
    EXPECT_EQ(driver_.state(), state);
  }

  /// Whether nobody holds the lock.
  bool looks() {
    if (!driver_.try_look()) return false;
    driver_.look_away();
    return true;
  }

  kolo::testing::LoneLink link_{shape().bytes()};
  control::Board board_{link_.memory(), shape(), 0};
  Driver driver_{board_, link_};
};

/// Each thing that a thread may do with the place, in each state in which a thread of its own can be: it does what the
/// table says, or ends the process.
TEST_F(DriverTest, MovesByTheTableOrNotAtAll) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  struct Act {
    const char* name;
    State to;
    std::function<void(Driver&)> act;
  };
  const std::vector<Act> acts{
      {"fall", State::falling, [](Driver& driver) KOLO_REQUIRES(kDriving) { driver.fall({}); }},
      {"leave", State::leaving, [](Driver& driver) KOLO_REQUIRES(kDriving) { driver.leave({}); }},
      {"let go", State::asleep, [](Driver& driver) KOLO_RELEASE(kDriving) { driver.let_go({}); }},
  };
  for (const State from :
       {State::asleep, State::napping, State::background, State::falling, State::called, State::leaving}) {
    for (const Act& one : acts) {
      if (is_legal(from, one.to)) continue;  // in the tests below
      EXPECT_DEATH(
          {
            bring_to(from);
            one.act(driver_);
            driver_.look_away();
          },
          "cannot come to state")
          << one.name << " from " << static_cast<int>(from);
    }
  }
}

TEST_F(DriverTest, AThreadInsideACallTakesThePlaceAndLeavesIt) {
  EXPECT_FALSE(driver_.nobody_looks()) << "the background thread begins by looking";
  if (!driver_.try_take()) FAIL() << "the place is free";
  EXPECT_EQ(driver_.state(), State::called);
  EXPECT_FALSE(driver_.in_background());
  driver_.leave({});
  EXPECT_TRUE(driver_.nobody_looks()) << "before it looks once more";
  driver_.let_go({});
  EXPECT_EQ(driver_.state(), State::asleep);
  EXPECT_TRUE(driver_.nobody_looks());
  EXPECT_FALSE(link_.was_rung());
  driver_.ring_if_asleep();
  driver_.ring_if_asleep();
  EXPECT_TRUE(link_.was_rung());
  driver_.take_over();
  EXPECT_FALSE(driver_.nobody_looks());
  driver_.leave({});
  driver_.let_go({true, base::Time::max(), false});
  EXPECT_TRUE(link_.was_rung()) << "for what it leaves";
}

TEST_F(DriverTest, TheBackgroundThreadStaysWhenItSeesSomethingAndSleepsUntilItIsRung) {
  driver_.wake_up();
  const DriverLock lock(driver_);
  EXPECT_EQ(driver_.state(), State::background);
  driver_.fall({});
  EXPECT_TRUE(driver_.nobody_looks());
  EXPECT_TRUE(driver_.in_background());
  driver_.stay();
  EXPECT_FALSE(driver_.nobody_looks());
  driver_.fall({});
  driver_.ring_if_asleep();
  const Driver::Events& events = driver_.sleep(std::nullopt, false);
  ASSERT_EQ(events.size(), 1U);
  driver_.hear_ring();
  EXPECT_EQ(driver_.state(), State::background);
  EXPECT_FALSE(driver_.nobody_looks());
}

TEST_F(DriverTest, SubmissionsDoNotRingWhoNaps) {
  driver_.take_over();
  driver_.leave({});
  driver_.let_go({});
  if (!driver_.try_look()) FAIL() << "nobody drives";
  driver_.nap(base::now());
  driver_.look_away();
  EXPECT_EQ(driver_.state(), State::napping);
  EXPECT_FALSE(driver_.nobody_looks());
  // A thread inside a call drives, and leaves before the nap is over.
  driver_.take_over();
  driver_.leave({});
  driver_.let_go({});
  EXPECT_EQ(driver_.state(), State::napping);
  // One that leaves nothing open ends it.
  driver_.take_over();
  driver_.leave({});
  driver_.let_go({false, base::Time::max(), true});
  EXPECT_EQ(driver_.state(), State::asleep);
  EXPECT_TRUE(driver_.nobody_looks());
  // And so does one that hears the alarm.
  if (!driver_.try_look()) FAIL() << "nobody drives";
  driver_.nap(base::now());
  driver_.take();
  driver_.hear_alarm();
  driver_.leave({});
  driver_.let_go({});
  EXPECT_EQ(driver_.state(), State::asleep);
}

TEST_F(DriverTest, WhoStepsAsideHasThePlaceAgain) {
  driver_.wake_up();
  const DriverLock lock(driver_);
  driver_.step_aside([this] {
    driver_.take_over();
    EXPECT_EQ(driver_.state(), State::called);
    driver_.step_aside([] {});
    driver_.leave({});
    driver_.let_go({});
    EXPECT_TRUE(driver_.nobody_looks());
    if (!driver_.try_look()) FAIL() << "nobody drives";
    driver_.look_away();
  });
  bool is_free = true;
  std::thread([&] { is_free = looks(); }).join();
  EXPECT_FALSE(is_free) << "it has the lock again";
  EXPECT_EQ(driver_.state(), State::background);
  EXPECT_FALSE(driver_.nobody_looks()) << "the mark is taken away";
}

/// The background thread leaves the place to a thread that seeks it, and sleeps until that one leaves something.
TEST_F(DriverTest, LeavesThePlaceToWhoSeeksIt) {
  std::promise<void> seeking;
  driver_.wake_up();
  std::thread seeker([&] {
    bool asked = false;
    const auto ask = [&] {
      if (!std::exchange(asked, true)) seeking.set_value();
      return false;
    };
    if (!driver_.seek(ask)) FAIL() << "the background thread leaves it";
    EXPECT_EQ(driver_.state(), State::called);
    driver_.leave({});
    driver_.let_go({true, base::Time::max(), false});
  });
  seeking.get_future().wait();
  EXPECT_NE(driver_.leave_to_seekers(), nullptr);
  EXPECT_EQ(driver_.state(), State::background);
  driver_.hear_ring();
  EXPECT_EQ(driver_.leave_to_seekers(), nullptr) << "nobody seeks it now";
  driver_.look_away();
  seeker.join();
}

/// The same, but it never comes to drive: it rings, or the background thread would sleep for ever.
TEST_F(DriverTest, WhoGivesUpSeekingRings) {
  std::promise<void> seeking;
  driver_.wake_up();
  std::thread seeker([&] {
    bool asked = false;
    const auto ask = [&] {
      if (!std::exchange(asked, true)) seeking.set_value();
      while (driver_.state() != State::beside) std::this_thread::yield();
      return true;
    };
    if (!driver_.seek(ask)) return;
    driver_.look_away();
    ADD_FAILURE() << "it was given up";
  });
  seeking.get_future().wait();
  EXPECT_NE(driver_.leave_to_seekers(), nullptr);
  driver_.hear_ring();
  driver_.look_away();
  seeker.join();
}

TEST_F(DriverTest, EndsTheBackgroundThreadWhereverItIs) {
  std::atomic<int> sleeps{0};
  driver_.start([this, &sleeps] {
    driver_.wake_up();
    const DriverLock lock(driver_);
    while (!driver_.is_ending()) {
      driver_.fall({});
      if (driver_.is_ending()) {
        driver_.stay();
        continue;
      }
      ++sleeps;
      static_cast<void>(driver_.sleep(std::nullopt, false));
      driver_.hear_ring();
    }
  });
  driver_.begin();
  while (sleeps.load() == 0) std::this_thread::yield();
  driver_.end();
  driver_.end();
}

// ---------------------------------------------------------------- no wake-up is lost

/// The protocol in small, for every interleaving: the background thread, one that submits and goes, and one that
/// submits and waits. Steps are sequentially consistent accesses; what happens under the lock and is seen by its
/// holders alone is one step. Whoever has submitted needs a driver that takes the submission out of the mailbox.
struct Model {
  // Shared.
  State state = State::asleep;
  std::int8_t holder = -1;  // of the lock
  bool marked = false;
  bool submitted = false;
  bool rung = false;
  std::int8_t seekers = 0;
  // Of each thread: background, submitter, waiter.
  std::array<std::int8_t, 3> at{};

  auto key() const { return std::tuple(state, holder, marked, submitted, rung, seekers, at); }
  bool operator<(const Model& other) const { return key() < other.key(); }
};

class Explorer {
 public:
  void explore() {
    std::vector<Model> open{Model{}};
    seen_.insert(open.front());
    while (!open.empty()) {
      const Model model = open.back();
      open.pop_back();
      next_.clear();
      background(model);
      submitter(model);
      waiter(model);
      if (next_.empty()) {
        ++ends_;
        EXPECT_FALSE(model.submitted) << "everybody sleeps, and nobody has taken the submission";
        EXPECT_EQ(model.holder, -1);
      }
      for (const Model& one : next_) {
        if (seen_.insert(one).second) open.push_back(one);
      }
    }
  }
  std::size_t states() const { return seen_.size(); }
  std::size_t ends() const { return ends_; }
  const std::set<std::pair<State, State>>& moves() const { return moves_; }

 private:
  enum Thread : std::int8_t { kBackground, kSubmitter, kWaiter };
  static constexpr std::int8_t kGone = 100;

  void move(Model& model, State to) {
    if (model.state == to) return;
    EXPECT_TRUE(is_legal(model.state, to)) << static_cast<int>(model.state) << " to " << static_cast<int>(to);
    moves_.insert({model.state, to});
    model.state = to;
  }
  void step(const Model& from, Thread thread, std::int8_t to, const std::function<void(Model&)>& change = {}) {
    Model model = from;
    model.at[thread] = to;
    if (change) change(model);
    next_.push_back(model);
  }
  void take(Model& model, Thread thread, State state) {
    model.holder = thread;
    move(model, state);
    model.marked = false;
  }

  void background(const Model& now) {
    switch (now.at[kBackground]) {
    case 0:  // to the lock
      if (now.holder < 0) step(now, kBackground, 1, [&](Model& m) { take(m, kBackground, State::background); });
      break;
    case 1:  // a pass; then it may step aside for a moment
      step(now, kBackground, 2, [](Model& m) { m.submitted = false; });
      step(now, kBackground, 0, [](Model& m) { m.submitted = false, m.holder = -1; });
      break;
    case 2:  // does anybody seek the place?
      if (now.seekers > 0) step(now, kBackground, 3, [&](Model& m) { move(m, State::beside); });
      if (now.seekers == 0) step(now, kBackground, 5);
      break;
    case 3:
      if (now.seekers > 0) step(now, kBackground, 4, [](Model& m) { m.holder = -1; });
      if (now.seekers == 0) step(now, kBackground, 5, [&](Model& m) { move(m, State::background); });
      break;
    case 4:  // in the poller
      if (now.rung) step(now, kBackground, 0, [](Model& m) { m.rung = false; });
      break;
    case 5:
      step(now, kBackground, 6, [&](Model& m) { move(m, State::falling), m.marked = true; });
      break;
    case 6:  // once more
      if (now.submitted) step(now, kBackground, 1, [&](Model& m) { take(m, kBackground, State::background); });
      if (!now.submitted) step(now, kBackground, 4, [&](Model& m) { move(m, State::asleep), m.holder = -1; });
      break;
    }
  }

  /// From `at` on: drives, marks the rank asleep, looks once more, goes. Ends at `kGone`.
  void drive(const Model& now, Thread thread, std::int8_t at) {
    switch (now.at[thread] - at) {
    case 0:  // a pass; then it may step aside
      step(now, thread, static_cast<std::int8_t>(at + 1), [](Model& m) { m.submitted = false; });
      step(now, thread, static_cast<std::int8_t>(at + 4), [](Model& m) { m.submitted = false, m.holder = -1; });
      break;
    case 1:
      step(now, thread, static_cast<std::int8_t>(at + 2), [&](Model& m) { move(m, State::leaving), m.marked = true; });
      break;
    case 2:
      step(now, thread, now.submitted ? static_cast<std::int8_t>(at + 3) : kGone, [&](Model& m) {
        move(m, State::asleep);
        m.holder = -1;
      });
      break;
    case 3:
      step(now, thread, kGone, [](Model& m) { m.rung = true; });
      break;
    case 4:
      if (now.holder < 0) step(now, thread, at, [&](Model& m) { take(m, thread, State::called); });
      break;
    }
  }
  void ring_if_asleep(const Model& now, Thread thread) {
    step(now, thread, kGone, [](Model& m) { m.rung = m.rung || m.marked; });
  }

  void submitter(const Model& now) {
    switch (now.at[kSubmitter]) {
    case 0:
      step(now, kSubmitter, 1, [](Model& m) { m.submitted = true; });
      break;
    case 1:
      step(now, kSubmitter, now.marked ? std::int8_t{2} : kGone);
      break;
    case 2:  // says it itself, if the place is free
      if (now.holder < 0) step(now, kSubmitter, 10, [&](Model& m) { take(m, kSubmitter, State::called); });
      if (now.holder >= 0) step(now, kSubmitter, 3);
      break;
    case 3:
      ring_if_asleep(now, kSubmitter);
      break;
    default:
      drive(now, kSubmitter, 10);
    }
  }

  void waiter(const Model& now) {
    const auto take_it = [&](Model& m) { take(m, kWaiter, State::called); };
    switch (now.at[kWaiter]) {
    case 0:  // submits without ringing: it waits at once
      step(now, kWaiter, 1, [](Model& m) { m.submitted = true; });
      break;
    case 1:
      if (now.holder < 0) step(now, kWaiter, 10, take_it);
      if (now.holder >= 0) step(now, kWaiter, 2, [](Model& m) { ++m.seekers; });
      break;
    case 2:  // has it, or loses patience
      if (now.holder < 0) step(now, kWaiter, 10, [&](Model& m) { take_it(m), --m.seekers; });
      if (now.holder >= 0) step(now, kWaiter, 3, [](Model& m) { --m.seekers; });
      break;
    case 3:
      step(now, kWaiter, 4, [](Model& m) { m.rung = m.rung || m.state == State::beside; });
      break;
    case 4:
      ring_if_asleep(now, kWaiter);
      break;
    default:
      drive(now, kWaiter, 10);
    }
  }

  std::set<Model> seen_;
  std::vector<Model> next_;
  std::set<std::pair<State, State>> moves_;
  std::size_t ends_ = 0;
};

TEST(DriverModel, LosesNoWakeUpInAnyInterleaving) {
  Explorer explorer;
  explorer.explore();
  EXPECT_GT(explorer.states(), 1000U);
  EXPECT_GT(explorer.ends(), 0U);
  std::size_t without_naps = 0;
  for (const Driver::Move& move : Driver::kMoves) {
    without_naps += move.from != State::napping && move.to != State::napping ? 1U : 0U;
  }
  EXPECT_EQ(explorer.moves().size(), without_naps) << "each move of the table was made";
  RecordProperty("states", static_cast<int>(explorer.states()));
}

}  // namespace
}  // namespace kolo::engine
