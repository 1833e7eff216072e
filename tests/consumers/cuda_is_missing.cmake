# SPDX-License-Identifier: Apache-2.0
# KOLO_WITH_CUDA=ON where something of it is missing: the configuration ends, and says what. Run by cmake -P with SOURCE,
# WORK, MISSING (a cache entry that hides it) and SAYS.
set(nothing_else -DKOLO_WITH_MPI=OFF -DKOLO_WITH_TORCH=OFF -DKOLO_BUILD_TESTS=OFF -DKOLO_BUILD_BENCH=OFF
                 -DKOLO_BUILD_EXAMPLES=OFF -DKOLO_BUILD_TOOLS=OFF -DKOLO_INSTALL=OFF)
file(REMOVE_RECURSE "${WORK}")
foreach(asked ON AUTO)
  execute_process(COMMAND "${CMAKE_COMMAND}" -S "${SOURCE}" -B "${WORK}/${asked}" -DKOLO_WITH_CUDA=${asked} -D${MISSING}
                          ${nothing_else}
                  RESULT_VARIABLE status OUTPUT_VARIABLE said ERROR_VARIABLE said)
  string(REGEX REPLACE "[ \n]+" " " said "${said}")
  if(asked STREQUAL ON AND (status EQUAL 0 OR NOT said MATCHES "KOLO_WITH_CUDA=ON, but ${SAYS}"))
    message(FATAL_ERROR "Expected an error with '${SAYS}', got status ${status}: ${said}")
  elseif(asked STREQUAL AUTO AND NOT (status EQUAL 0 AND said MATCHES "CUDA left out: ${SAYS}"))
    message(FATAL_ERROR "Expected a build without CUDA and '${SAYS}', got status ${status}: ${said}")
  endif()
endforeach()
