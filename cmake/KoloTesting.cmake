# SPDX-License-Identifier: Apache-2.0
# How tests are built and registered. One ctest entry an executable; scripts/test counts the cases inside.

# kolo_gtest_program(<target>): the compile settings of an executable of GoogleTest's cases.
# GoogleTest's header, the heaviest of each file, is compiled once a tree. It alone, so that no file gets by without an
# include that it needs. CMAKE_DISABLE_PRECOMPILE_HEADERS=ON leaves it out.
function(kolo_gtest_program target)
  kolo_gtest_options(${target})
  if(CMAKE_DISABLE_PRECOMPILE_HEADERS OR KOLO_COVERAGE)
    return()
  endif()
  if(NOT TARGET kolo_gtest_header)
    file(CONFIGURE OUTPUT "${PROJECT_BINARY_DIR}/gtest_header.cpp" CONTENT "// Compiled for its precompiled header.\n")
    add_library(kolo_gtest_header OBJECT EXCLUDE_FROM_ALL "${PROJECT_BINARY_DIR}/gtest_header.cpp")
    kolo_gtest_options(kolo_gtest_header)
    target_link_libraries(kolo_gtest_header PRIVATE kolo_build_flags Threads::Threads GTest::gtest)
    target_precompile_headers(kolo_gtest_header PRIVATE <gtest/gtest.h>)
  endif()
  target_precompile_headers(${target} REUSE_FROM kolo_gtest_header)
endfunction()

function(kolo_gtest_options target)
  set_target_properties(${target} PROPERTIES CXX_EXTENSIONS OFF)
  target_compile_options(${target} PRIVATE
    # For ccache: gcc says which precompiled header it read; in clang's does not stand when it was made.
    $<$<CXX_COMPILER_ID:GNU>:-fpch-preprocess> "$<$<CXX_COMPILER_ID:Clang>:SHELL:-Xclang -fno-pch-timestamp>")
  if(KOLO_SANITIZE MATCHES address)
    # What both sanitizers add takes the optimiser longer than all else. What is tested is optimised all the same.
    target_compile_options(${target} PRIVATE -O0)
  endif()
endfunction()

# kolo_test(NAME <name> SOURCES <files>... [LABELS <labels>...] [LIBS <targets>...] [TIMEOUT <seconds>])
# A GoogleTest executable that sees Kolo's internals. LABELS defaults to unit, TIMEOUT to 120.
function(kolo_test)
  cmake_parse_arguments(PARSE_ARGV 0 arg "" "NAME;TIMEOUT" "SOURCES;LABELS;LIBS")
  if(NOT arg_LABELS)
    set(arg_LABELS unit)
  endif()
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 120)
  endif()
  if(KOLO_SANITIZE)
    math(EXPR arg_TIMEOUT "${arg_TIMEOUT} * 5")  # the thread sanitizer slows down that much and more
  endif()
  add_executable(${arg_NAME} ${arg_SOURCES})
  kolo_gtest_program(${arg_NAME})
  target_link_libraries(${arg_NAME} PRIVATE kolo_internal $<TARGET_NAME_IF_EXISTS:kolo_test_support> ${arg_LIBS}
                                            GTest::gtest_main)
  add_test(NAME ${arg_NAME} COMMAND ${arg_NAME})
  set_tests_properties(${arg_NAME} PROPERTIES LABELS "${arg_LABELS}" TIMEOUT ${arg_TIMEOUT})
endfunction()

# kolo_mpi_test(NAME <name> SOURCE <file or target> [NPS <n>...] [ENV <A=b>...] [ARGS <args>...] [TIMEOUT <seconds>]
#               [LABELS <labels>...] [MPIRUN_ARGS <args>...])
# A real MPI program on the public API, run by mpirun with each number of ranks. The program is built once: a
# second call may name another NAME for the same SOURCE, to run it with other variables or arguments.
function(kolo_mpi_test)
  cmake_parse_arguments(PARSE_ARGV 0 arg "" "NAME;SOURCE;TIMEOUT" "NPS;ENV;ARGS;LABELS;MPIRUN_ARGS")
  if(NOT arg_NPS)
    set(arg_NPS 1 2 3 4 8)
  endif()
  if(NOT arg_LABELS)
    set(arg_LABELS mpi)
  endif()
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 120)
  endif()
  kolo_mpi_program(target "${arg_SOURCE}")
  foreach(np IN LISTS arg_NPS)
    set(test ${arg_NAME}_np${np})
    add_test(NAME ${test} COMMAND ${MPIEXEC_EXECUTABLE} --oversubscribe --bind-to none -np ${np} ${arg_MPIRUN_ARGS}
                                  $<TARGET_FILE:${target}> ${arg_ARGS})
    kolo_mpi_properties(${test} "${arg_TIMEOUT}" "${arg_LABELS}" "${arg_ENV}")
  endforeach()
endfunction()

# kolo_hosts_test(NAME <name> SOURCE <file or target> [HOSTS <h>...] [SLOTS <k>] [ENV <A=b>...] [ARGS <args>...]
#                 [TIMEOUT <seconds>])
# The same across hosts in network namespaces (scripts/with-hosts; needs root).
function(kolo_hosts_test)
  cmake_parse_arguments(PARSE_ARGV 0 arg "" "NAME;SOURCE;SLOTS;TIMEOUT" "HOSTS;ENV;ARGS")
  if(NOT arg_HOSTS)
    set(arg_HOSTS 2 3)
  endif()
  if(NOT arg_SLOTS)
    set(arg_SLOTS 2)
  endif()
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 120)
  endif()
  kolo_mpi_program(target "${arg_SOURCE}")
  set(variables "")
  if(arg_ENV)
    set(variables env ${arg_ENV})  # mpirun hands variables to other hosts only when told to; env needs no telling
  endif()
  foreach(hosts IN LISTS arg_HOSTS)
    set(test ${arg_NAME}_hosts${hosts})
    add_test(NAME ${test} COMMAND "${PROJECT_SOURCE_DIR}/scripts/with-hosts" ${hosts} --slots ${arg_SLOTS} --
                                  ${variables} $<TARGET_FILE:${target}> ${arg_ARGS})
    kolo_mpi_properties(${test} "${arg_TIMEOUT}" hosts "")
  endforeach()
endfunction()

# The executable for a source file, made at the first call; a target's name is taken as it is.
function(kolo_mpi_program out source)
  if(TARGET "${source}")
    set(${out} ${source} PARENT_SCOPE)
    return()
  endif()
  cmake_path(GET source STEM name)
  set(name mpi_${name})
  if(NOT TARGET ${name})
    kolo_program(${name} SOURCES "${source}" LIBS kolo_deps::mpi)
  endif()
  set(${out} ${name} PARENT_SCOPE)
endfunction()

# mpirun jobs fill the machine: one at a time, and none beside other tests.
function(kolo_mpi_properties test timeout labels environment)
  set_tests_properties(${test} PROPERTIES
    LABELS "${labels}" TIMEOUT ${timeout} RUN_SERIAL TRUE
    ENVIRONMENT "OMPI_ALLOW_RUN_AS_ROOT=1;OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1;${environment}")
endfunction()
