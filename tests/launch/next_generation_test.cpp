// SPDX-License-Identifier: Apache-2.0
//
// A process of an elastic job and its parent, in one process: what they say, and what ends a start. tests/elastic has
// jobs.
#include "launch/next_generation.hpp"

#include <poll.h>
#include <unistd.h>

#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>

#include <gtest/gtest.h>

#include <kolo/error.hpp>

#include "launch/directions.hpp"
#include "launch/exchange.hpp"
#include "launch/notice_link.hpp"
#include "launch/watched_store.hpp"

namespace kolo::launch {
namespace {

using membership::Notice;
using membership::Topic;

constexpr std::chrono::minutes kLong{10};

void await(int fd, short events) {
  pollfd one{fd, events, 0};
  ASSERT_EQ(::poll(&one, 1, -1), 1);
}

/// The parent's end.
class Parent {
 public:
  [[nodiscard]] base::Lookup environment() const {
    return [address = encode(listener_.address())](const char* name) -> std::optional<std::string> {
      if (std::string(name) == "KOLO_KEEPER") return address;
      return std::string(name) == "KOLO_JOB_KEY" ? std::optional<std::string>("secret") : std::nullopt;
    };
  }
  /// The next thing that the process says.
  Notice hear() {
    while (!link_) {
      await(listener_.fd(), POLLIN);
      link_ = listener_.try_accept();
    }
    while (true) {
      link_->pump();
      if (std::optional<Notice> notice = link_->take()) return *notice;
      if (!link_->lost().empty()) return {Topic::farewell, 0, 0, 0, link_->lost()};
      await(link_->fd(), link_->events());
    }
  }
  void say(const Notice& notice) {
    link_->send(notice);
    ASSERT_TRUE(link_->flushed());
  }
  [[nodiscard]] pid_t peer() const { return link_->peer(); }
  void end() { link_.reset(); }

 private:
  NoticeListener listener_;
  std::optional<NoticeLink> link_;
};

std::string sentence_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.status().message();
  }
  return "";
}

/// A process that is rank `rank` of two in generation 1.
struct Member {
  explicit Member(Parent& parent, int rank) : generations(parent.environment()) {
    std::future<std::optional<Generation>> coming = std::async(std::launch::async, [&] { return generations.next(); });
    EXPECT_EQ(parent.hear(), (Notice{Topic::ready, 0, 0, 0, {}}));
    parent.say({Topic::next, 1, rank, 2, {}});
    generation = coming.get();
  }
  Generations generations;
  std::optional<Generation> generation;
};

TEST(NextGeneration, IsTakenInWithAKeyOfItsOwn) {
  Parent parent;
  const Member member(parent, 1);
  ASSERT_TRUE(member.generation);
  EXPECT_EQ(std::tie(member.generation->number, member.generation->rank, member.generation->size),
            std::make_tuple(1U, 1, 2));
  EXPECT_EQ(member.generation->key, generation_key("secret", 1));
  EXPECT_NE(member.generation->key, generation_key("secret", 2));
  EXPECT_EQ(parent.peer(), ::getpid());
  const Options options = member.generation->options();
  EXPECT_EQ(options.settings.at("KOLO_JOB_KEY"), member.generation->key);
  EXPECT_EQ(std::make_pair(options.rank, options.size), std::make_pair(1, 2));
}

TEST(NextGeneration, AThreadAnswers) {
  Parent parent;
  Member member(parent, 0);
  parent.say({Topic::ask, 0, 0, 0, {}});
  EXPECT_EQ(parent.hear().topic, Topic::alive);
  member.generations.started();
  EXPECT_EQ(parent.hear(), (Notice{Topic::started, 1, 0, 0, {}}));
  member.generations.leaving();
  EXPECT_EQ(parent.hear().topic, Topic::leaving);
}

TEST(NextGeneration, TheKeeperPassesOnWhereRank0Is) {
  Parent first, second;
  Member root(first, 0);
  Member other(second, 1);
  root.generation->store->set("kolo/rank-0", "here");
  const Notice entry = first.hear();
  EXPECT_EQ(entry, (Notice{Topic::entry, 1, 0, 0, "here"}));
  EXPECT_EQ(root.generation->store->get("kolo/rank-0", kLong), "here");
  EXPECT_EQ(other.generation->store->get("kolo/rank-0", std::chrono::nanoseconds(0)), std::nullopt);
  second.say(entry);
  EXPECT_EQ(other.generation->store->get("kolo/rank-0", kLong), "here");
}

TEST(NextGeneration, AStartThatCannotSucceedEndsAtOnce) {
  for (const int rank : {0, 1}) {
    Parent parent;
    Member member(parent, rank);
    auto starting = std::async(std::launch::async, [&] {
      return sentence_of([&] {
        const std::unique_ptr<Exchange> exchange =
            make_exchange({rank, 2, "the rank", "the size"},
                          store_directions(member.generation->store, "the keeper", "", {"secret", ""}));
        static_cast<void>(exchange->exchange("settings", "mine", kLong, base::now()));
      });
    });
    if (rank == 0) {
      EXPECT_EQ(parent.hear().topic, Topic::entry);
    }
    parent.say({Topic::change, 1, 0, 0, "another one has ended"});
    const std::string sentence = starting.get();
    EXPECT_NE(sentence.find("another one has ended"), std::string::npos) << sentence;
    EXPECT_TRUE(member.generations.change_is_due());
    EXPECT_EQ(member.generations.trouble(), "another one has ended");
  }
}

TEST(NextGeneration, NoneFollows) {
  Parent parent;
  Member member(parent, 0);
  auto coming = std::async(std::launch::async, [&] { return member.generations.next(); });
  EXPECT_EQ(parent.hear(), (Notice{Topic::ready, 1, 0, 0, {}}));
  EXPECT_NE(sentence_of([&] { member.generation->store->set("kolo/rank-0", "late"); }), "");
  parent.say({Topic::farewell, 0, 0, 0, "the work is done"});
  EXPECT_FALSE(coming.get());
  EXPECT_EQ(member.generations.farewell(), "the work is done");
}

TEST(NextGeneration, FinishesWithTheOthersOrNot) {
  for (const bool all : {true, false}) {
    Parent parent;
    Member member(parent, 0);
    auto finishing = std::async(std::launch::async, [&] { return member.generations.finish(); });
    EXPECT_EQ(parent.hear(), (Notice{Topic::done, 1, 0, 0, {}}));
    parent.say(all ? Notice{Topic::farewell, 0, 0, 0, "the work is done"} : Notice{Topic::change, 1, 0, 0, "gone"});
    EXPECT_EQ(finishing.get(), all);
  }
}

TEST(NextGeneration, TheEndOfKoloRunIsAnError) {
  Parent parent;
  Member member(parent, 0);
  auto coming = std::async(std::launch::async,
                           [&] { return sentence_of([&] { static_cast<void>(member.generations.next()); }); });
  EXPECT_EQ(parent.hear().topic, Topic::ready);
  parent.end();
  EXPECT_EQ(coming.get(), "the kolo-run that has started this process has ended");
}

TEST(NextGeneration, WrongPlacesAreRefused) {
  const auto with = [](const std::string& keeper) {
    return sentence_of([&] {
      Generations generations([&](const char* name) -> std::optional<std::string> {
        if (std::string(name) == "KOLO_KEEPER") return keeper;
        return std::nullopt;
      });
    });
  };
  EXPECT_EQ(with(""), "no kolo-run that lets ranks come and go has started this process: start it by kolo-run with "
                      "--min-np, --max-np or --respawn");
  const std::string wrong = "KOLO_KEEPER is not as kolo-run sets it (local:name/word); do not set it yourself";
  EXPECT_EQ(with("tcp://node0:29400"), wrong);
  EXPECT_EQ(with("local:0a1b2/word"), wrong);
  EXPECT_EQ(
      with("local:kolo-nobody/" + std::string(64, 'a')),
      "this process cannot reach the kolo-run that has started it (KOLO_KEEPER): Connection refused (errno 111); it "
      "has ended, or another process of this rank is connected already");
}

}  // namespace
}  // namespace kolo::launch
