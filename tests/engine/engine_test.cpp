// SPDX-License-Identifier: Apache-2.0
//
// An engine alone in its world, over a backend that fails.
#include "engine/engine.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <future>
#include <iterator>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "control/sentences.hpp"
#include "tests/support/lone_link.hpp"

namespace kolo::engine {
namespace {

struct FailingBackend final : data::Backend {
  [[nodiscard]] std::string describe() const override { return "failing"; }
  void start(data::Job& job) override { job_ = &job; }
  data::Progress progress(std::vector<data::Job*>& finished) override {
    const bool ends = finishes.load();
    fail();
    if (!ends || job_ == nullptr) return data::Progress::waiting;
    finished.push_back(std::exchange(job_, nullptr));
    return data::Progress::advanced;
  }
  void abort() noexcept override { on_abort(); }

  std::function<void()> fail;
  std::function<void()> on_abort = [] {};
  std::atomic<bool> finishes{false};  ///< the job, in the next look

 private:
  data::Job* job_ = nullptr;
};

/// A transport with a bell. It counts how often it was armed, and loses a peer when the test says so.
class BellTransport final : public transport::InterNode {
 public:
  std::byte* staging(std::size_t) override { return nullptr; }
  Operation send(int, int, const std::byte*, std::size_t) override { return 1; }
  Operation receive(int, int, std::byte*, std::size_t) override { return 1; }
  bool test(Operation) override { return false; }
  const char* name() const noexcept override { return "a bell"; }
  void progress(base::Time) override {
    if (lost.exchange(false)) reports_.peer_lost(0, "its link is down");
  }
  void report_to(Reports reports) override { reports_ = std::move(reports); }
  int event_fd() const noexcept override { return bell.fd(); }
  bool arm() override {
    bell.drain();
    ++armed;
    return true;
  }

  base::EventFd bell;
  std::atomic<int> armed{0};
  std::atomic<bool> lost{false};

 private:
  Reports reports_;
};

class LoneEngine : public ::testing::Test {
 protected:
  std::shared_ptr<Engine> make(LogSink sink = [](const LogRecord&) {}) {
    EngineParts parts;
    parts.topology = core::make_topology(0, {0}, 0);
    parts.logger = std::make_shared<base::Logger>(LogLevel::warning, 0, std::move(sink));
    parts.layout = node_layout(parts.settings, parts.topology, 0, 1);
    link_ = std::make_shared<kolo::testing::LoneLink>(parts.layout.bytes());
    parts.link = link_;
    parts.make_plane = [this](const PlaneSite&) {
      auto backend = std::make_unique<FailingBackend>();
      backend_ = backend.get();
      return backend;
    };
    parts.inter = inter_;
    parts.wait_policy = base::choose_wait_policy(1, 1);
    parts.wait_policy.background_pauses = pauses_;
    std::shared_ptr<Engine> engine = Engine::make(std::move(parts));
    engine->begin();
    return engine;
  }
  OperationPtr submit(Engine& engine) {
    core::Signature signature;
    signature.tensors.push_back({DType::float32, Shape{1}});
    const OperationPtr operation = named(engine, "w", std::move(signature));
    auto* const data = reinterpret_cast<std::byte*>(&memory_);
    operation->buffers.push_back({data, data, 1});
    engine.submitter().submit(operation, false);
    return operation;
  }
  OperationPtr submit_barrier(Engine& engine) {
    core::Signature signature;
    signature.kind = core::CollectiveKind::barrier;
    const OperationPtr operation = named(engine, "barrier", std::move(signature));
    engine.submitter().submit(operation, false);
    return operation;
  }

  /// What comes in the background thread's last look before it sleeps, and rings: after that look at the place where it
  /// is, and before the look at the descriptors, if that is due. It must end the operation, however many looks there
  /// were before.
  void check_last_look(const std::function<OperationPtr(Engine&, const OperationPtr& first)>& come) {
    constexpr int kMostPauses = 200;  // several times the passes between two looks at the descriptors
    const std::thread::id self = std::this_thread::get_id();
    for (pauses_ = 0; pauses_ < kMostPauses && !HasFailure(); ++pauses_) {
      inter_ = std::make_shared<BellTransport>();
      const auto engine = make();
      const control::Board board(link_->memory(), control::board_shape(engine->settings(), 1), 0);
      OperationPtr first;
      OperationPtr awaited;
      std::atomic<bool> has_begun{false};
      std::atomic<bool> has_come{false};
      backend_->fail = [&] {
        if (!has_begun.load() || has_come.load() || std::this_thread::get_id() == self || !board.asleep(0)) return;
        awaited = come(*engine, first);
        has_come.store(true);
      };
      first = submit(*engine);
      has_begun.store(true);
      link_->wake(0);  // the background thread looks, and is about to sleep again
      while (!has_come.load()) std::this_thread::yield();
      const base::Time end = base::now() + std::chrono::seconds(20);
      while (!awaited->done() && base::now() < end) std::this_thread::yield();
      EXPECT_TRUE(awaited->done()) << "the ring was lost, behind " << pauses_ << " passes";
      backend_->finishes.store(true);
      engine->shutdown();
    }
  }

  float memory_ = 1;
  int pauses_ = 0;  ///< the background thread's passes without a find, before it sleeps
  std::shared_ptr<kolo::testing::LoneLink> link_;
  std::shared_ptr<transport::InterNode> inter_;
  FailingBackend* backend_ = nullptr;

 private:
  static OperationPtr named(Engine& engine, const char* name, core::Signature signature) {
    auto operation = std::make_shared<Operation>();
    operation->entry = &engine.world()->names.claim(name);
    operation->signature = std::make_shared<const core::Signature>(std::move(signature));
    return operation;
  }
};

/// What a rank is told whose engine failed for this reason.
std::string told(const char* reason) {
  std::string sentence = reason;
  sentence += " The contents of the buffers in flight are undefined.";
  return sentence;
}

/// Whatever it is, it is a fatal error with the exception's words, and the driver's place is free again.
TEST_F(LoneEngine, MakesAFatalErrorOfWhateverIsThrown) {
  const auto reason_of = [this](std::function<void()> fail) {
    const auto engine = make();
    backend_->fail = std::move(fail);
    const OperationPtr operation = submit(*engine);
    engine->driving().wait(*operation, std::nullopt);
    EXPECT_EQ(operation->outcome().code(), ErrorCode::transport);
    EXPECT_EQ(engine->metrics().failures, 1U);
    EXPECT_THROW(engine->check_usable(), Error);
    engine->shutdown();
    return operation->outcome().message();
  };
  EXPECT_EQ(reason_of([] { throw std::bad_alloc(); }), told("rank 0 failed: there is no memory left."));
  EXPECT_EQ(reason_of([] { throw std::logic_error("unheard of"); }), told("rank 0 failed: unheard of."));
  EXPECT_EQ(reason_of([] { throw 42; }), told("rank 0 failed: an exception that is no std::exception."));
  EXPECT_EQ(reason_of([] { throw Error(ErrorCode::transport, "a broken wire"); }),
            told("rank 0 failed: a broken wire."));
}

/// A backend's abort may block: nobody may have to wait for it to hear of the error, nor hang on the engine meanwhile.
TEST_F(LoneEngine, TellsOfAFatalErrorBeforeItAbortsTheBackend) {
  std::promise<std::string> logged;
  const auto engine = make([&](const LogRecord& record) { logged.set_value(record.message); });
  auto said = logged.get_future();
  bool aborted = false;
  bool heard = false;
  bool free = false;
  backend_->fail = [] { throw Error(ErrorCode::transport, "a broken wire"); };
  backend_->on_abort = [&] {
    if (std::exchange(aborted, true)) return;  // once more, at the end
    heard = said.wait_for(std::chrono::seconds(10)) == std::future_status::ready && engine->faulted();
    auto asked = std::async(std::launch::async, [&] { return engine->metrics().failures; });
    free = asked.wait_for(std::chrono::seconds(10)) == std::future_status::ready && asked.get() == 0;
  };
  const OperationPtr operation = submit(*engine);
  engine->driving().wait(*operation, std::nullopt);
  EXPECT_TRUE(heard);
  EXPECT_TRUE(free) << "and what is open has not failed before the backend was done";
  EXPECT_EQ(said.get(), operation->outcome().message());
  engine->shutdown();
}

/// A barrier's batch needs no backend. When another batch's backend fails in the pass that begins it, it stays
/// unfinished, and must not keep the background thread awake while the waiting thread ends the batches.
TEST_F(LoneEngine, SleepsWhileBatchesEndAfterAFatalError) {
  const std::thread::id self = std::this_thread::get_id();
  bool slept = false;
  bool on_this_thread = false;
  for (int turn = 0; turn < 1000 && !on_this_thread; ++turn) {  // the background thread may be the one to end them
    const auto engine = make();
    std::promise<void> looked;
    std::promise<void> submitted;
    int looks = 0;
    bool aborted = false;  // once more, at the end
    backend_->fail = [&] {
      if (++looks > 1) throw Error(ErrorCode::transport, "a broken wire");
      looked.set_value();
      submitted.get_future().wait();
    };
    backend_->on_abort = [&] {
      if (std::exchange(aborted, true) || std::this_thread::get_id() != self) return;
      on_this_thread = true;
      const std::uint64_t sleeps = engine->metrics().sleeps;
      link_->wake(0);
      const base::Time end = base::now() + std::chrono::seconds(10);
      while (!slept && base::now() < end) slept = engine->metrics().sleeps > sleeps;
    };
    auto barrier = std::async(std::launch::async, [&] {
      looked.get_future().wait();
      const OperationPtr operation = submit_barrier(*engine);
      submitted.set_value();
      return operation;
    });
    const OperationPtr operation = submit(*engine);
    engine->driving().wait(*operation, std::nullopt);
    engine->driving().wait(*barrier.get(), std::nullopt);
    EXPECT_EQ(operation->outcome().code(), ErrorCode::transport);
    engine->shutdown();
  }
  EXPECT_TRUE(on_this_thread);
  EXPECT_TRUE(slept);
}

/// A transport is armed before the engine sleeps; a peer that it loses is a fatal error that names it.
TEST_F(LoneEngine, SleepsOnATransportAndHearsOfALostPeer) {
  const auto transport = std::make_shared<BellTransport>();
  inter_ = transport;
  const auto engine = make();
  backend_->fail = [] {};
  const OperationPtr operation = submit(*engine);
  while (transport->armed.load() == 0) std::this_thread::yield();
  transport->lost.store(true);
  transport->bell.signal();
  engine->driving().wait(*operation, std::nullopt);
  EXPECT_EQ(operation->outcome().code(), ErrorCode::rank_lost);
  EXPECT_EQ(operation->outcome().message(), told("rank 0 was lost: its link is down."));
  engine->shutdown();
}

/// A peer of the node has brought the batch further, and rings.
TEST_F(LoneEngine, SeesWhatAPeerPublishesInItsLastLook) {
  check_last_look([this](Engine&, const OperationPtr& first) {
    backend_->finishes.store(true);
    link_->wake(0);
    return first;
  });
}

TEST_F(LoneEngine, SeesWhatIsSubmittedInItsLastLook) {
  check_last_look([this](Engine& engine, const OperationPtr&) {
    OperationPtr late;
    std::thread([&] { late = submit_barrier(engine); }).join();
    return late;
  });
}

/// The link of a rank whose leader the test is. Nobody wakes the rank but itself, and the leader's end.
class LinkToLeader final : public transport::NodeLink {
 public:
  explicit LinkToLeader(std::size_t bytes) : own_(bytes) {}
  [[nodiscard]] std::byte* memory() const noexcept override { return own_.memory(); }
  [[nodiscard]] std::size_t bytes() const noexcept override { return own_.bytes(); }
  void wake(int local_rank) noexcept override {
    if (local_rank == 1) own_.wake(0);
  }
  [[nodiscard]] int wake_fd() const noexcept override { return own_.wake_fd(); }
  /// Asked once more when the end is heard, before the log is read: only then does the leader's last word stand there.
  [[nodiscard]] std::vector<Liveness> liveness() const override {
    if (ended_.load()) say_last();
    return {{end_.fd(), 0}};
  }
  std::shared_ptr<transport::SharedRegion> share(const transport::Sharers&, std::size_t, const transport::Meeting&,
                                                 const std::function<void()>&) override {
    std::abort();
  }
  std::shared_ptr<transport::PeerMemory> peer_memory(const transport::Meeting&) override { std::abort(); }
  void end_leader() {
    ended_.store(true);
    end_.signal();
  }

  std::function<void()> say_last;  ///< set before `end_leader`

 private:
  testing::LoneLink own_;
  base::EventFd end_;
  std::atomic<bool> ended_{false};
};

/// Waits until a thread of this process sleeps, and goes on sleeping.
void await_sleep(pid_t thread) {
  for (int looks = 0; looks < 200; ++looks) {
    std::ifstream file("/proc/self/task/" + std::to_string(thread) + "/stat");
    const std::string stat((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
    if (stat.at(stat.rfind(')') + 2) != 'S') looks = 0;
    std::this_thread::yield();
  }
}

/// Rank 1 of a node of two. Its leader is the test, which speaks through the node's board.
class EngineOfTwo : public ::testing::Test {
 protected:
  EngineOfTwo() {
    EngineParts parts;
    parts.topology = core::make_topology(1, {0, 0}, 0);
    parts.logger = std::make_shared<base::Logger>(LogLevel::off);
    parts.layout = node_layout(parts.settings, parts.topology, 0, 1);
    link_ = std::make_shared<LinkToLeader>(parts.layout.bytes());
    leader_ = std::make_unique<control::Board>(link_->memory(), control::board_shape(parts.settings, 2), 0);
    parts.link = link_;
    parts.make_plane = [](const PlaneSite&) {
      auto backend = std::make_unique<FailingBackend>();
      backend->fail = [] {};
      return backend;
    };
    parts.inter = transport_ = std::make_shared<BellTransport>();
    parts.wait_policy = base::choose_wait_policy(1, 2);
    engine_ = Engine::make(std::move(parts));
    engine_->begin();
  }
  void say(const control::LogEntry& entry) {
    control::Bytes bytes;
    control::encode(entry, bytes);
    EXPECT_TRUE(leader_->append_log(control::ByteView(bytes.data(), bytes.size())));
  }
  /// The next message of the rank.
  control::UpMessage hear() {
    control::Bytes bytes;
    while (!leader_->receive(1, bytes)) std::this_thread::yield();
    return control::decode_up(control::ByteView(bytes.data(), bytes.size()));
  }
  OperationPtr submit_barrier(bool quiet) {
    core::Signature signature;
    signature.kind = core::CollectiveKind::barrier;
    auto operation = std::make_shared<Operation>();
    operation->entry = &engine_->world()->names.claim("barrier");
    operation->signature = std::make_shared<const core::Signature>(std::move(signature));
    engine_->submitter().submit(operation, quiet);
    return operation;
  }

  /// What the operation ends with when the engine fails and its leader tells all of it.
  std::string fatal_error_of(Operation& operation) {
    const auto lost = std::get<control::RankLost>(hear());
    say(control::Faulted{lost.code, lost.rank, control::rank_lost(lost)});
    link_->wake(1);
    engine_->driving().wait(operation, std::nullopt);
    EXPECT_EQ(operation.outcome().code(), ErrorCode::transport);
    engine_->shutdown(kPatience);
    return operation.outcome().message();
  }

  static constexpr std::chrono::seconds kPatience{20};
  std::shared_ptr<LinkToLeader> link_;
  std::shared_ptr<BellTransport> transport_;
  std::unique_ptr<control::Board> leader_;
  std::shared_ptr<Engine> engine_;
};

/// A leader that says that all have left, and is gone. The end of its process has the log read, in the background
/// thread and outside a pass; the thread that shuts down sleeps.
TEST_F(EngineOfTwo, HearsTheEndOfTheLogByThatOfItsLeader) {
  std::atomic<pid_t> leaver{0};
  auto left = std::async(std::launch::async, [&] {
    leaver.store(::gettid());
    const auto begun = std::chrono::steady_clock::now();
    engine_->shutdown(kPatience);
    return std::chrono::steady_clock::now() - begun;
  });
  EXPECT_TRUE(std::holds_alternative<control::Departed>(hear()));
  await_sleep(leaver.load());
  link_->say_last = [&] {
    say(control::RankDeparted{0});
    say(control::Closed{});
  };
  link_->end_leader();
  EXPECT_LT(left.get(), kPatience);
  EXPECT_TRUE(engine_->left_together());
}

/// A leader that leaves and is gone before this rank's own departure could be told. Nothing more stands in the log: the
/// end of its process alone is the end of the log.
TEST_F(EngineOfTwo, LeavesWhenItsLeaderHasLeftAndIsGone) {
  std::atomic<pid_t> leaver{0};
  auto left = std::async(std::launch::async, [&] {
    leaver.store(::gettid());
    const auto begun = std::chrono::steady_clock::now();
    engine_->shutdown(kPatience);
    return std::chrono::steady_clock::now() - begun;
  });
  EXPECT_TRUE(std::holds_alternative<control::Departed>(hear()));
  say(control::RankDeparted{0});
  link_->wake(1);
  while (engine_->metrics().log_entries < 1) std::this_thread::yield();
  await_sleep(leaver.load());
  link_->say_last = [] {};
  link_->end_leader();
  EXPECT_LT(left.get(), kPatience);
  EXPECT_FALSE(engine_->faulted());
}

/// Who hears first that all have left closes its connections, and this rank may see that before it reads why.
TEST_F(EngineOfTwo, TakesNoDepartureForALoss) {
  auto left = std::async(std::launch::async, [&] { engine_->shutdown(kPatience); });
  EXPECT_TRUE(std::holds_alternative<control::Departed>(hear()));
  transport_->lost.store(true);
  while (transport_->lost.load()) link_->wake(1);
  static_cast<void>(engine_->metrics());  // the pass that was told is over
  control::Bytes message;
  EXPECT_FALSE(leader_->receive(1, message)) << "it tells of a loss";
  say(control::RankDeparted{0});
  say(control::Closed{});
  link_->wake(1);
  left.get();
  EXPECT_TRUE(engine_->left_together());
}

/// A rank that submits and leaves in the same pass: its leader must not hear that it has left before it can see what
/// was submitted.
TEST_F(EngineOfTwo, SaysWhatItSubmittedBeforeItSaysThatItLeaves) {
  constexpr core::TensorId kId = core::kReservedIds;
  const OperationPtr first = submit_barrier(false);
  const auto declared = std::get<control::Declared>(hear());
  say(control::Assigned{kId, 1, core::kGlobalSet, "barrier", *declared.variants.at(0).signature});
  say(control::BatchAppended{core::kGlobalSet, {kId}});
  link_->wake(1);
  engine_->driving().wait(*first, std::nullopt);
  const OperationPtr second = submit_barrier(true);  // unheard: the thread that shuts down finds it
  auto left = std::async(std::launch::async, [&] { engine_->shutdown(kPatience); });
  control::UpMessage message = hear();
  while (!std::holds_alternative<control::Departed>(message)) message = hear();
  EXPECT_EQ(leader_->count(1, kId), (control::CountWord{1, 2}));
  say(control::BatchAppended{core::kGlobalSet, {kId}});
  say(control::RankDeparted{0});
  say(control::Closed{});
  link_->wake(1);
  left.get();
  EXPECT_TRUE(second->outcome().ok());
}

/// Not only in the backend: here in what the background thread reads and hears. The leader is told, and tells all.
TEST_F(EngineOfTwo, MakesAFatalErrorOfALogThatCannotBeRead) {
  const OperationPtr operation = submit_barrier(false);
  hear();
  const control::Bytes noise(3, std::byte{0xff});
  EXPECT_TRUE(leader_->append_log(control::ByteView(noise.data(), noise.size())));
  link_->wake(1);
  EXPECT_EQ(fatal_error_of(*operation), told("rank 1 failed: a control message is not valid: its kind is unknown."));
}

TEST_F(EngineOfTwo, MakesAFatalErrorOfWhateverIsThrownAboutADeath) {
  const OperationPtr operation = submit_barrier(false);
  hear();
  link_->say_last = [] { throw std::bad_alloc(); };
  link_->end_leader();
  EXPECT_EQ(fatal_error_of(*operation), told("rank 1 failed: there is no memory left."));
}

}  // namespace
}  // namespace kolo::engine
