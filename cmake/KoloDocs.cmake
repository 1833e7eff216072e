# SPDX-License-Identifier: Apache-2.0
# `cmake --build DIR --target docs`: the public API's reference in DIR/docs/html. The test of the same name fails
# on any warning of Doxygen's.
find_program(KOLO_DOXYGEN doxygen)
if(NOT KOLO_DOXYGEN)
  list(APPEND KOLO_SUMMARY "docs      left out: no doxygen found (Debian: doxygen)")
  return()
endif()
list(APPEND KOLO_SUMMARY "docs      target docs, with ${KOLO_DOXYGEN}")
configure_file(docs/Doxyfile.in Doxyfile @ONLY)
add_custom_target(docs COMMAND "${KOLO_DOXYGEN}" "${PROJECT_BINARY_DIR}/Doxyfile" VERBATIM
                       COMMENT "Reference of the public API in ${PROJECT_BINARY_DIR}/docs/html")
if(KOLO_BUILD_TESTS AND NOT KOLO_SANITIZE)
  add_test(NAME docs COMMAND "${KOLO_DOXYGEN}" "${PROJECT_BINARY_DIR}/Doxyfile")
  set_tests_properties(docs PROPERTIES LABELS unit TIMEOUT 120)
endif()
