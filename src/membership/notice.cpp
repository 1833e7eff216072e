// SPDX-License-Identifier: Apache-2.0
#include "membership/notice.hpp"

#include <vector>

#include "base/fields.hpp"
#include "base/text.hpp"

namespace kolo::membership {
namespace {

template <class Number>
Number number_of(const std::string& field) {
  const auto number = base::parse_number<Number>(field);
  if (!number) base::throw_unreadable();
  return *number;
}

}  // namespace

std::string encode(const Notice& notice) {
  return base::join_fields({std::to_string(static_cast<int>(notice.topic)), std::to_string(notice.generation),
                            std::to_string(notice.rank), std::to_string(notice.size), notice.text});
}

Notice decode(const std::string& text) {
  const std::vector<std::string> fields = base::split_fields(text);
  if (fields.size() != 5) base::throw_unreadable();
  const int topic = number_of<int>(fields[0]);
  if (topic < static_cast<int>(Topic::ready) || topic > static_cast<int>(Topic::farewell)) base::throw_unreadable();
  Notice notice{static_cast<Topic>(topic), number_of<std::uint64_t>(fields[1]), number_of<int>(fields[2]),
                number_of<int>(fields[3]), fields[4]};
  const bool is_next = notice.topic == Topic::next;
  const bool is_place = notice.rank >= 0 && notice.rank < notice.size && notice.generation > 0;
  if (is_next ? !is_place : notice.rank != 0 || notice.size != 0) base::throw_unreadable();
  return notice;
}

}  // namespace kolo::membership
