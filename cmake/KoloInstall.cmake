# SPDX-License-Identifier: Apache-2.0
# What a user finds after `cmake --install`: headers, library, tools, CMake package and pkg-config file. The wheel of kolopy
# is such an installation, too (python/CMakeLists.txt).
include(CMakePackageConfigHelpers)

set(kolo_cmake_dir "${CMAKE_INSTALL_LIBDIR}/cmake/kolo")

# One component for each package of Debian's (cmake/KoloPackages.cmake): lib, dev, tools, bench, libtorch.
set(kolo_link_component dev)
if(SKBUILD)
  # A wheel has no links: the library's file has the name by which the loader looks for it, and there is no other.
  set_target_properties(kolo PROPERTIES VERSION "${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR}")
  set(kolo_link_component left_out)
endif()
install(TARGETS kolo EXPORT kolo-targets LIBRARY COMPONENT lib NAMELINK_COMPONENT ${kolo_link_component}
        ARCHIVE COMPONENT dev)
# A part's header only with the part: a program that includes it without learns so at once.
set(kolo_absent_headers "")
foreach(part CUDA)
  if(NOT KOLO_HAS_${part})
    string(TOLOWER "${part}" header)
    list(APPEND kolo_absent_headers PATTERN "${header}.hpp" EXCLUDE PATTERN "kolo_${header}.h" EXCLUDE)
  endif()
endforeach()
install(DIRECTORY include/kolo "${PROJECT_BINARY_DIR}/include/kolo" DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}"
        COMPONENT dev FILES_MATCHING PATTERN "*.hpp" PATTERN "*.h" PATTERN "libtorch.hpp" EXCLUDE ${kolo_absent_headers})
install(EXPORT kolo-targets NAMESPACE kolo:: DESTINATION "${kolo_cmake_dir}" COMPONENT dev)
if(KOLO_HAS_TORCH)
  # A file of its own: find_package(kolo) without the component needs no LibTorch.
  install(TARGETS kolo_libtorch EXPORT kolo-libtorch-targets COMPONENT libtorch)
  install(EXPORT kolo-libtorch-targets NAMESPACE kolo:: DESTINATION "${kolo_cmake_dir}" COMPONENT libtorch)
  install(FILES include/kolo/libtorch.hpp DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/kolo" COMPONENT libtorch)
endif()
# Tools find their library beside them wherever the prefix is moved to.
file(RELATIVE_PATH kolo_lib_from_bin "/${CMAKE_INSTALL_BINDIR}" "/${CMAKE_INSTALL_LIBDIR}")

# kolo_install_tools(<component> [<targets>...]): programs, and the man pages of all tools of the component.
function(kolo_install_tools component)
  set(names ${ARGN})
  if(names)
    set_target_properties(${names} PROPERTIES INSTALL_RPATH "$ORIGIN/${kolo_lib_from_bin}")
    install(TARGETS ${names} RUNTIME COMPONENT ${component})
  endif()
  if(component STREQUAL tools AND KOLO_BUILD_TOOLS)
    install(PROGRAMS "${PROJECT_BINARY_DIR}/bin/kolo-timeline" DESTINATION "${CMAKE_INSTALL_BINDIR}" COMPONENT tools)
    list(APPEND names kolo-timeline)
  endif()
  if(KOLO_MAN_PAGES)
    list(TRANSFORM names REPLACE "(.+)" "${PROJECT_BINARY_DIR}/man/\\1.1.gz")
    install(FILES ${names} DESTINATION "${CMAKE_INSTALL_MANDIR}/man1" COMPONENT ${component})
  endif()
endfunction()
kolo_install_tools(tools ${KOLO_TOOLS})
kolo_install_tools(bench ${KOLO_BENCH_TOOLS})
# All that is built of it, so that a build of little else can be installed.
add_custom_target(kolo_installed)
add_dependencies(kolo_installed kolo ${KOLO_TOOLS} ${KOLO_BENCH_TOOLS} kolo_man_pages)
if(KOLO_HAS_TORCH)
  add_dependencies(kolo_installed kolo_libtorch)
endif()

# Users of a static library link what it links, found the way we found it.
set(KOLO_IS_SHARED ${BUILD_SHARED_LIBS})
configure_package_config_file(cmake/kolo-config.cmake.in kolo-config.cmake INSTALL_DESTINATION "${kolo_cmake_dir}"
                              NO_SET_AND_CHECK_MACRO)
write_basic_package_version_file(kolo-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES "${CMAKE_CURRENT_BINARY_DIR}/kolo-config.cmake" "${CMAKE_CURRENT_BINARY_DIR}/kolo-config-version.cmake"
              cmake/KoloFindDependencies.cmake DESTINATION "${kolo_cmake_dir}" COMPONENT dev)

# The same for pkg-config. A static library's needs are its users' as well, so they are public there and the same
# `pkg-config --libs kolo` serves both.
set(kolo_pc_needs "-pthread")
set(kolo_pc_libraries -ldl)
if(KOLO_HAS_CUDA)
  list(APPEND kolo_pc_libraries "${kolo_cudart}" -lrt)
endif()
foreach(library IN LISTS kolo_pc_libraries)
  # -L and -l: CMake's pkg-config module puts a path among the options, before what needs it.
  if(library MATCHES "^(/.*)/lib([^/]+)\\.(so|a)$")
    string(APPEND kolo_pc_needs " -L${CMAKE_MATCH_1} -l${CMAKE_MATCH_2}")
  else()
    string(APPEND kolo_pc_needs " ${library}")
  endif()
endforeach()
set(kolo_pc_rpath "")
if(BUILD_SHARED_LIBS)
  # It has what it needs, and its headers need nothing.
  set(kolo_pc_requires "")
  set(kolo_pc_libs "-lkolo")
  if(SKBUILD)
    set(kolo_pc_libs "-l:libkolo.so.${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR}")
  endif()
  if(NOT CMAKE_SKIP_INSTALL_RPATH)
    # Where the loader does not look by itself a program needs to be told: as CMake's users are by their build tree.
    set(kolo_pc_rpath " -Wl,-rpath,\${libdir}")
  endif()
else()
  set(kolo_pc_requires "Requires: libhwy")
  set(kolo_pc_libs "-lkolo ${kolo_pc_needs}")
endif()
if(IS_ABSOLUTE "${CMAKE_INSTALL_LIBDIR}" OR IS_ABSOLUTE "${CMAKE_INSTALL_INCLUDEDIR}")
  set(kolo_pc_prefix "${CMAKE_INSTALL_PREFIX}")
  set(kolo_pc_libdir "${CMAKE_INSTALL_FULL_LIBDIR}")
  set(kolo_pc_includedir "${CMAKE_INSTALL_FULL_INCLUDEDIR}")
else()
  # Relative to the file, so that an install with another --prefix is right as well.
  file(RELATIVE_PATH kolo_pc_prefix "/${CMAKE_INSTALL_LIBDIR}/pkgconfig" "/")
  set(kolo_pc_prefix "\${pcfiledir}/${kolo_pc_prefix}")
  set(kolo_pc_libdir "\${prefix}/${CMAKE_INSTALL_LIBDIR}")
  set(kolo_pc_includedir "\${prefix}/${CMAKE_INSTALL_INCLUDEDIR}")
endif()
configure_file(cmake/kolo.pc.in kolo.pc @ONLY)
install(FILES "${CMAKE_CURRENT_BINARY_DIR}/kolo.pc" DESTINATION "${CMAKE_INSTALL_LIBDIR}/pkgconfig" COMPONENT dev)
