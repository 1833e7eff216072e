# SPDX-License-Identifier: Apache-2.0
# How tests are built and registered. One ctest entry an executable, or a few for a part of its cases each;
# scripts/test counts the cases inside.
#
# How much of the machine a test takes is its property PROCESSORS, in halves of a CPU: scripts/test lets ctest run
# tests of two halves for each CPU, and of four in the release build, whose tests wait most. A test that computes
# takes 2, one that waits most or much of its time 1, an mpirun job half of its ranks, one that must be alone all of
# them. COST is set where a test is so long that it must begin early: about its seconds on 2 CPUs. ctest remembers
# those of the others. There are no time limits: what hangs ends after ctest's own 25 minutes, which a busy machine
# does not reach.

# Names differ between build trees, whose tests scripts/test runs together: in a sanitizer's they begin with its name.
set(KOLO_TEST_PREFIX "")
set(KOLO_TEST_LAUNCHER "")
if(KOLO_SANITIZE MATCHES "^[a-z]+")
  set(KOLO_TEST_PREFIX "${CMAKE_MATCH_0}_")
  # Sanitizers need their addresses free: newer kernels randomise more than gcc 12's expect. Where setarch is not
  # permitted, tests run without it.
  find_program(KOLO_SETARCH setarch)
  if(KOLO_SETARCH)
    execute_process(COMMAND "${KOLO_SETARCH}" ${CMAKE_HOST_SYSTEM_PROCESSOR} -R true RESULT_VARIABLE status
                    OUTPUT_QUIET ERROR_QUIET)
    if(status EQUAL 0)
      set(KOLO_TEST_LAUNCHER "${KOLO_SETARCH}" ${CMAKE_HOST_SYSTEM_PROCESSOR} -R)
    endif()
  endif()
endif()

# kolo_gtest_program(<target>): the compile settings of an executable of GoogleTest's cases.
# GoogleTest's header, the heaviest of each file, is compiled once a tree, together with all else that tests include
# often. CMAKE_DISABLE_PRECOMPILE_HEADERS=ON leaves it out.
function(kolo_gtest_program target)
  kolo_gtest_options(${target})
  if(CMAKE_DISABLE_PRECOMPILE_HEADERS OR KOLO_COVERAGE)
    return()
  endif()
  if(NOT TARGET kolo_gtest_header)
    file(CONFIGURE OUTPUT "${PROJECT_BINARY_DIR}/gtest_header.cpp" CONTENT "// Compiled for its precompiled header.\n")
    add_library(kolo_gtest_header OBJECT EXCLUDE_FROM_ALL "${PROJECT_BINARY_DIR}/gtest_header.cpp")
    kolo_gtest_options(kolo_gtest_header)
    target_include_directories(kolo_gtest_header PRIVATE ${KOLO_INCLUDE_ROOTS})
    target_link_libraries(kolo_gtest_header PRIVATE kolo_build_flags Threads::Threads GTest::gtest)
    target_precompile_headers(kolo_gtest_header PRIVATE <gtest/gtest.h> ${KOLO_STD_HEADERS} <kolo/kolo.hpp>)
  endif()
  target_precompile_headers(${target} REUSE_FROM kolo_gtest_header)
endfunction()

function(kolo_gtest_options target)
  set_target_properties(${target} PROPERTIES CXX_EXTENSIONS OFF)
  target_compile_options(${target} PRIVATE ${KOLO_PRECOMPILED_HEADER_OPTIONS})
  if(KOLO_SANITIZE MATCHES address)
    # What both sanitizers add takes the optimiser longer than all else. What is tested is optimised all the same.
    target_compile_options(${target} PRIVATE -O0)
    # Undefined behaviour is looked for in what is tested. (An address error of the library's may show in a test.)
    set_target_properties(${target} PROPERTIES KOLO_NO_SANITIZE undefined)
  endif()
endfunction()

# kolo_test(NAME <name> SOURCES <files>... [LIBS <targets>...] [...]): a GoogleTest executable that sees Kolo's internals.
# The rest is kolo_add_gtest's.
function(kolo_test)
  cmake_parse_arguments(PARSE_ARGV 0 arg "" "NAME" "SOURCES;LIBS;LABELS;SHARDS;PROCESSORS")
  add_executable(${arg_NAME} ${arg_SOURCES})
  kolo_gtest_program(${arg_NAME})
  target_link_libraries(${arg_NAME} PRIVATE kolo_internal $<TARGET_NAME_IF_EXISTS:kolo_test_support> ${arg_LIBS}
                                            GTest::gtest_main)
  kolo_add_gtest(${arg_NAME} LABELS ${arg_LABELS} SHARDS ${arg_SHARDS} PROCESSORS ${arg_PROCESSORS})
endfunction()

# kolo_add_gtest(<target> [LABELS <labels>...] [SHARDS <n>] [PROCESSORS <halves>]): registers an executable of
# GoogleTest's cases. LABELS defaults to unit, PROCESSORS to 2. With SHARDS each of n ctest
# entries, <target>_1 to <target>_<n>, runs its part of the cases, so that long suites use several CPUs; they begin
# early. Each entry leaves the list of its cases in <build tree>/gtest, for scripts/test.
function(kolo_add_gtest target)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "SHARDS;PROCESSORS" "LABELS")
  if(NOT arg_LABELS)
    set(arg_LABELS unit)
  endif()
  if(NOT arg_SHARDS)
    set(arg_SHARDS 1)
  endif()
  if(NOT arg_PROCESSORS)
    set(arg_PROCESSORS 2)
  endif()
  set(cost "")
  if(arg_SHARDS GREATER 1)
    set(cost COST 30)
    if(KOLO_SANITIZE MATCHES thread)
      set(cost COST 80)
    endif()
  endif()
  foreach(shard RANGE 1 ${arg_SHARDS})
    set(test ${KOLO_TEST_PREFIX}${target})
    if(arg_SHARDS GREATER 1)
      string(APPEND test _${shard})
    endif()
    math(EXPR index "${shard} - 1")
    add_test(NAME ${test} COMMAND ${KOLO_TEST_LAUNCHER} $<TARGET_FILE:${target}>)
    set_tests_properties(${test} PROPERTIES LABELS "${arg_LABELS}" PROCESSORS ${arg_PROCESSORS}
      ${cost} ENVIRONMENT
      "GTEST_TOTAL_SHARDS=${arg_SHARDS};GTEST_SHARD_INDEX=${index};GTEST_OUTPUT=json:${PROJECT_BINARY_DIR}/gtest/${test}.json")
  endforeach()
endfunction()

# kolo_mpi_test(NAME <name> SOURCE <file or target> [NPS <n>...] [ENV <A=b>...] [ARGS <args>...]
#               [LABELS <labels>...] [MPIRUN_ARGS <args>...])
# A real MPI program on the public API, run by mpirun with each number of ranks. The program is built once: a
# second call may name another NAME for the same SOURCE, to run it with other variables or arguments.
function(kolo_mpi_test)
  cmake_parse_arguments(PARSE_ARGV 0 arg "" "NAME;SOURCE" "NPS;ENV;ARGS;LABELS;MPIRUN_ARGS")
  if(NOT arg_NPS)
    set(arg_NPS 1 2 3 4 8)
  endif()
  if(NOT arg_LABELS)
    set(arg_LABELS mpi)
  endif()
  kolo_mpi_program(target "${arg_SOURCE}")
  foreach(np IN LISTS arg_NPS)
    set(test ${arg_NAME}_np${np})
    add_test(NAME ${test} COMMAND ${MPIEXEC_EXECUTABLE} --oversubscribe --bind-to none -np ${np} ${arg_MPIRUN_ARGS}
                                  $<TARGET_FILE:${target}> ${arg_ARGS})
    kolo_mpi_properties(${test} ${np} "${arg_LABELS}" "${arg_ENV}")
  endforeach()
endfunction()

# kolo_hosts_test(NAME <name> SOURCE <file or target> [HOSTS <h>...] [SLOTS <k>] [ENV <A=b>...] [ARGS <args>...]
#                 [STORE])
# The same across hosts in network namespaces (scripts/with hosts; needs root). STORE: started without MPI.
function(kolo_hosts_test)
  cmake_parse_arguments(PARSE_ARGV 0 arg "STORE" "NAME;SOURCE;SLOTS" "HOSTS;ENV;ARGS")
  if(NOT arg_HOSTS)
    set(arg_HOSTS 2 3)
  endif()
  if(NOT arg_SLOTS)
    set(arg_SLOTS 2)
  endif()
  kolo_mpi_program(target "${arg_SOURCE}")
  set(variables "")
  if(arg_ENV)
    set(variables env ${arg_ENV})  # mpirun hands variables to other hosts only when told to; env needs no telling
  endif()
  set(start "")
  if(arg_STORE)
    set(start --store)
  endif()
  foreach(hosts IN LISTS arg_HOSTS)
    set(test ${arg_NAME}_hosts${hosts})
    add_test(NAME ${test} COMMAND "${PROJECT_SOURCE_DIR}/scripts/with" hosts ${hosts} --slots ${arg_SLOTS} ${start} --
                                  ${variables} $<TARGET_FILE:${target}> ${arg_ARGS})
    math(EXPR ranks "${hosts} * ${arg_SLOTS}")
    kolo_mpi_properties(${test} ${ranks} hosts "")
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

# kolo_mpi_properties(<test> <ranks> <labels> <environment>): of a test that starts mpirun.
function(kolo_mpi_properties test ranks labels environment)
  math(EXPR halves "(${ranks} + 1) / 2")
  set_tests_properties(${test} PROPERTIES
    LABELS "${labels}" PROCESSORS ${halves}
    ENVIRONMENT "OMPI_ALLOW_RUN_AS_ROOT=1;OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1;${environment}")
endfunction()

# kolo_mpi_abi_of(<variable> <folder>): which ABI the mpi.h of the folder has, as mpi/abi/mpi.hpp numbers them.
function(kolo_mpi_abi_of variable folder)
  file(STRINGS "${folder}/mpi.h" lines REGEX "define (OPEN_MPI|OMPI_MAJOR_VERSION|MPICH_VERSION|MPI_ABI_VERSION)[ \t]+[\"1-9]")
  if(lines MATCHES "OPEN_MPI|OMPI_")
    set(${variable} 1 PARENT_SCOPE)
  elseif(lines MATCHES "MPICH_VERSION")
    set(${variable} 2 PARENT_SCOPE)
  else()
    set(${variable} 3 PARENT_SCOPE)
  endif()
endfunction()

# The MPIs that Debian's packages have installed: KOLO_MPI_FAMILIES, and of each KOLO_MPICC_<family>,
# KOLO_MPIEXEC_<family>, KOLO_<family>_INCLUDE, KOLO_<family>_LIBRARY, and KOLO_<family>_FILE, the name that programs load.
set(KOLO_MPI_FAMILIES "")
set(KOLO_openmpi_FILE libmpi.so.40)
set(KOLO_mpich_FILE libmpich.so.12)
foreach(family openmpi mpich)
  find_program(KOLO_MPICC_${family} mpicc.${family})
  find_program(KOLO_MPIEXEC_${family} mpiexec.${family})
  find_path(KOLO_${family}_INCLUDE mpi.h PATHS "/usr/lib/${CMAKE_LIBRARY_ARCHITECTURE}/${family}/include"
                                               "/usr/include/${CMAKE_LIBRARY_ARCHITECTURE}/${family}" NO_DEFAULT_PATH)
  find_library(KOLO_${family}_LIBRARY NAMES ${KOLO_${family}_FILE})
  mark_as_advanced(KOLO_MPICC_${family} KOLO_MPIEXEC_${family} KOLO_${family}_INCLUDE KOLO_${family}_LIBRARY)
  if(KOLO_HAS_MPI AND KOLO_MPICC_${family} AND KOLO_MPIEXEC_${family} AND KOLO_${family}_INCLUDE AND KOLO_${family}_LIBRARY)
    list(APPEND KOLO_MPI_FAMILIES ${family})
  endif()
endforeach()
