// SPDX-License-Identifier: Apache-2.0
//
// An engine alone in its world, over a backend that fails.
#include "engine/engine.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/lone_link.hpp"

namespace kolo::engine {
namespace {

struct FailingBackend final : data::Backend {
  [[nodiscard]] std::string describe() const override { return "failing"; }
  void start(data::Job&) override {}
  data::Progress progress(bool, std::vector<data::Job*>&) override {
    fail();
    return data::Progress::waiting;
  }
  void abort() noexcept override { on_abort(); }

  std::function<void()> fail;
  std::function<void()> on_abort = [] {};
};

class LoneEngine : public ::testing::Test {
 protected:
  std::shared_ptr<Engine> make(LogSink sink = [](const LogRecord&) {}) {
    EngineParts parts;
    parts.topology = core::make_topology(0, {0}, 0);
    parts.settings.express_bytes = 0;
    parts.logger = std::make_shared<base::Logger>(LogLevel::warning, 0, std::move(sink));
    parts.link = std::make_shared<kolo::testing::LoneLink>(shared_bytes(parts.settings, parts.topology));
    auto backend = std::make_unique<FailingBackend>();
    backend_ = backend.get();
    parts.backend = std::move(backend);
    parts.wait_policy = base::choose_wait_policy(1, 1);
    std::shared_ptr<Engine> engine = Engine::make(std::move(parts));
    engine->begin();
    return engine;
  }
  OperationPtr submit(Engine& engine) {
    auto operation = std::make_shared<Operation>();
    operation->entry = &engine.names().claim("w");
    core::Signature signature;
    signature.tensors.push_back({DType::float32, Shape{1}});
    operation->signature = std::make_shared<const core::Signature>(signature);
    auto* const data = reinterpret_cast<std::byte*>(&memory_);
    operation->buffers.push_back({data, data, 1});
    engine.submit(operation, false);
    return operation;
  }

  float memory_ = 1;
  FailingBackend* backend_ = nullptr;
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
    engine->wait(*operation, std::nullopt);
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
  engine->wait(*operation, std::nullopt);
  EXPECT_TRUE(heard);
  EXPECT_TRUE(free) << "and what is open has not failed before the backend was done";
  EXPECT_EQ(said.get(), operation->outcome().message());
  engine->shutdown();
}

}  // namespace
}  // namespace kolo::engine
