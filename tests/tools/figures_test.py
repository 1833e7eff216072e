#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How scripts/internal/figures counts.

    figures_test.py REPOSITORY
"""
import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(sys.argv.pop(1)) / "scripts/internal"))
sys.dont_write_bytecode = True
import figures  # noqa: E402

CLASS = figures.without_comments("""
namespace kolo {
class Other;
/// A class; its braces { count }.
class Engine : public std::enable_shared_from_this<Engine> {
 public:
  static std::shared_ptr<Engine> make(EngineParts parts);
  Engine(const Engine&) = delete;
  [[nodiscard]] bool faulted() const noexcept { return faulted_.load(); }
  template <class Work>
  bool guarded(Work&& work) noexcept {
    return work();
  }

 private:
  enum class Command : std::uint8_t { submit, leave };
  struct Item {
    Command command = Command::submit;  // not a member of Engine's own
    OperationPtr operation;
  };
  struct Sleeper {
    bool asleep = false;
    base::Time until = base::Time::max();
    void wake();
  };
  class HandOver {
    Engine& engine_;
  };
  static constexpr int kBurst = 8;
  using Clock = std::function<int(int)>;

  const core::Topology topology_;
  base::Mailbox<Item> mailbox_;
  std::atomic<bool> faulted_{false};  // "};"
  std::map<int, std::function<void(int)>> callbacks_;
  Sleeper sleeper_;
  mutable bool in_sink_ = false;
  base::Duration patience_ = {};
  int counts_[4] = {};
};
}  // namespace kolo
""")


class Counting(unittest.TestCase):
    def test_lines_are_those_with_code(self):
        text = 'int a;  // x\n\n/* one\n two */\nauto s = "// no comment";\n  }\nauto r = R"(/*\n\n*/)";\n'
        self.assertEqual(figures.code_lines(text), 5)

    def test_members_are_counted_through_nested_structs(self):
        names = [figures.MEMBER.search(member).group(1) for member in figures.members(CLASS, "Engine")]
        self.assertEqual(names, ["topology_", "mailbox_", "faulted_", "callbacks_", "asleep", "until", "in_sink_",
                                 "patience_", "counts_"])

    def test_flags_are_booleans_and_counts_between_threads(self):
        flags = [member for member in figures.members(CLASS, "Engine") if figures.FLAG.match(member)]
        self.assertEqual([figures.MEMBER.search(flag).group(1) for flag in flags], ["faulted_", "asleep", "in_sink_"])


unittest.main()
