// SPDX-License-Identifier: Apache-2.0
//
// Meshes: which ranks lie along which axis.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include <kolo/kolo.hpp>
#include <kolo/mesh.hpp>

#include "errors.hpp"
#include "world.hpp"

namespace {

using kolo::ErrorCode;
using kolo::Mesh;
using kolo::testing::has;
using kolo::testing::run_in;
using kolo::testing::sentence_of;

TEST(Mesh, IsRowMajor) {
  run_in(12, [] {
    const Mesh mesh(kolo::world(), {{"data", 2}, {"pipeline", 3}, {"tensor", 2}});
    const int rank = kolo::rank();
    EXPECT_EQ(mesh.coordinate("data"), rank / 6);
    EXPECT_EQ(mesh.coordinate("pipeline"), rank / 2 % 3);
    EXPECT_EQ(mesh.coordinate("tensor"), rank % 2);
    EXPECT_EQ(mesh.size("pipeline"), 3);
    EXPECT_EQ(mesh["data"].members(), (std::vector<int>{rank % 6, rank % 6 + 6}));
    EXPECT_EQ(mesh["tensor"].members(), (std::vector<int>{rank / 2 * 2, rank / 2 * 2 + 1}));
    const int first = rank / 6 * 6 + rank % 2;
    EXPECT_EQ(mesh["pipeline"].members(), (std::vector<int>{first, first + 2, first + 4}));
    for (const char* axis : {"data", "pipeline", "tensor"}) {
      EXPECT_EQ(kolo::rank(mesh[axis]), mesh.coordinate(axis));
      EXPECT_EQ(kolo::allreduce(mesh[axis], 1, kolo::ReduceOp::sum), mesh.size(axis));
    }
    EXPECT_EQ(kolo::size(mesh.group()), 12);
    EXPECT_EQ(mesh.axes()[1].name, "pipeline");
  });
}

TEST(Mesh, OfSeveralAxesIsAMesh) {
  run_in(12, [] {
    const Mesh mesh(kolo::world(), {{"data", 2}, {"pipeline", 3}, {"tensor", 2}});
    const int tensor = kolo::rank() % 2, pipeline = kolo::rank() / 2 % 3, data = kolo::rank() / 6;
    const Mesh outer = mesh.submesh({"data", "pipeline"});
    EXPECT_EQ(outer.group().members(),
              (std::vector<int>{tensor, tensor + 2, tensor + 4, tensor + 6, tensor + 8, tensor + 10}));
    EXPECT_EQ(outer.coordinate("pipeline"), pipeline);
    EXPECT_EQ(outer["data"].members(), mesh["data"].members());
    const Mesh turned = mesh.submesh({"tensor", "data"});
    const int first = pipeline * 2;
    EXPECT_EQ(turned.group().members(), (std::vector<int>{first, first + 6, first + 1, first + 7}));
    EXPECT_EQ(kolo::rank(turned.group()), tensor * 2 + data);
    EXPECT_EQ(turned.coordinate("tensor"), tensor);
    EXPECT_EQ(kolo::size(mesh.submesh({}).group()), 1);
    EXPECT_EQ(kolo::size(mesh.submesh({"data", "pipeline", "tensor"}).group()), 12);
    EXPECT_EQ(sentence_of(ErrorCode::invalid_argument,
                          [&] {
                            static_cast<void>(mesh.submesh({"data", "data"}));
                          }),
              "Mesh: axis \"data\" stands twice in the list");
  });
}

TEST(Mesh, AxesOfOneRankAndOfAllRanksWork) {
  run_in(4, [] {
    const Mesh mesh(kolo::world(), {{"data", 4}, {"tensor", 1}});
    EXPECT_EQ(kolo::size(mesh["tensor"]), 1);
    EXPECT_EQ(mesh["data"].members(), (std::vector<int>{0, 1, 2, 3}));
    EXPECT_EQ(mesh.coordinate("tensor"), 0);
    const Mesh pair(kolo::world().split(kolo::rank() % 2), {{"a", 1}, {"b", 2}});
    EXPECT_EQ(pair["b"].members(), (std::vector<int>{kolo::rank() % 2, kolo::rank() % 2 + 2}));
  });
  run_in(1, [] { EXPECT_EQ(kolo::size(Mesh(kolo::world(), {}).group()), 1); });
}

TEST(Mesh, SaysWhatIsWrongWithAxes) {
  run_in(4, [] {
    const auto error = [](const std::vector<kolo::MeshAxis>& axes, ErrorCode code = ErrorCode::invalid_argument) {
      return sentence_of(code, [&] { const Mesh mesh(kolo::world(), axes); });
    };
    EXPECT_EQ(error({{"data", 2}, {"tensor", 3}}),
              "Mesh: the product of the sizes (\"data\" 2, \"tensor\" 3) must be the number of ranks, 4");
    EXPECT_EQ(error({}), "Mesh: the product of the sizes (none) must be the number of ranks, 4");
    EXPECT_EQ(
        error({{"a", 2000000000}, {"b", 2000000000}, {"c", 2000000000}}),
        "Mesh: the product of the sizes (\"a\" 2000000000, \"b\" 2000000000, \"c\" 2000000000) must be the number "
        "of ranks, 4");
    EXPECT_EQ(error({{"data", 2}, {"data", 2}}), "Mesh: two axes are named \"data\"");
    EXPECT_EQ(error({{"", 4}}), "Mesh: an axis has no name; every one needs its own");
    EXPECT_EQ(error({{"data", 4}, {"tensor", 0}}), "Mesh: axis \"tensor\" has size 0; it must be 1 or more");
    EXPECT_TRUE(has(error({{"data", kolo::rank() == 3 ? 2 : 4}}, ErrorCode::mismatch), {"Mesh", "axis data 2"}));
    const Mesh mesh(kolo::world(), {{"data", 2}, {"tensor", 2}});
    const char* const sentence = "Mesh: there is no axis \"pipeline\"; the axes are \"data\" 2, \"tensor\" 2";
    EXPECT_EQ(sentence_of(ErrorCode::invalid_argument, [&] { static_cast<void>(mesh["pipeline"]); }), sentence);
    EXPECT_EQ(sentence_of(ErrorCode::invalid_argument, [&] { static_cast<void>(mesh.coordinate("pipeline")); }),
              sentence);
    EXPECT_EQ(sentence_of(ErrorCode::invalid_argument, [&] { static_cast<void>(mesh.submesh({"pipeline"})); }),
              sentence);
  });
}

}  // namespace
