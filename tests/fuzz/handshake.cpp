// SPDX-License-Identifier: Apache-2.0
//
// The words before the first frame: what a peer says is believed only if it is as ours would be.
#include "fuzz.hpp"

#include <algorithm>

#include "base/handshake.hpp"
#include "control/tcp/addresses.hpp"

namespace kolo::fuzz {
namespace {

constexpr const char* kKey = "key";

template <class Bytes>
Bytes take(Input& input) {
  Bytes bytes{};
  const std::string_view text = input.text(bytes.size());
  std::copy(text.begin(), text.end(), bytes.begin());
  return bytes;
}

template <class Bytes>
std::string text_of(const Bytes& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace

/// The first byte says which word it is; of a hello its second bit says that the peer knows the key.
void run(std::string_view bytes) {
  Input input(bytes);
  const std::uint8_t which = input.byte();
  base::Word word{};
  if (which % 4 == 0) {
    const auto greeting = take<base::GreetingBytes>(input);
    if (base::judge_greeting(greeting, word).empty()) KOLO_CHECK(base::make_greeting(word) == greeting);
  } else if (which % 4 == 1) {
    const tcp::Nonce nonce{};
    const auto greeting = take<tcp::GreetingBytes>(input);
    if (tcp::judge_greeting(greeting, nonce, word).empty()) KOLO_CHECK(tcp::make_greeting(word, nonce) == greeting);
  } else {
    auto hello = take<base::HelloBytes>(input);
    std::string wrong;
    if (which % 4 == 3) {
      base::Hello said{static_cast<std::int32_t>(input.number(4)), static_cast<std::int32_t>(input.number(4)),
                       static_cast<std::int64_t>(input.number(8)), take<base::Word>(input)};
      hello = base::make_hello(kKey, word, said);
    }
    const auto heard = base::judge_hello(kKey, word, hello, wrong);
    KOLO_CHECK(heard.has_value() == wrong.empty());
    KOLO_CHECK(heard || which % 4 == 2) << wrong;
    if (heard) KOLO_CHECK(base::make_hello(kKey, word, *heard) == hello);
  }
}

std::vector<std::string> seeds() {
  base::Word word{};
  word.fill(7);
  const base::Hello hello{3, 8, 1234, word};
  return {std::string(1, '\0') + text_of(base::make_greeting(word)), '\1' + text_of(tcp::make_greeting(word, {})),
          '\2' + text_of(base::make_hello(kKey, base::Word{}, hello)), '\3' + std::string(140, '\1')};
}

}  // namespace kolo::fuzz
