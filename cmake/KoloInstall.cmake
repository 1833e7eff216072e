# SPDX-License-Identifier: Apache-2.0
# What a user finds after `cmake --install`: headers, library, tools, CMake package and pkg-config file.
include(CMakePackageConfigHelpers)

set(kolo_cmake_dir "${CMAKE_INSTALL_LIBDIR}/cmake/kolo")

install(TARGETS kolo EXPORT kolo-targets COMPONENT kolo)
# A part's header only with the part: a program that includes it without learns so at once.
set(kolo_absent_headers "")
foreach(part MPI CUDA TORCH)
  if(NOT KOLO_HAS_${part})
    string(TOLOWER "${part}" header)
    string(REPLACE "torch" "libtorch" header "${header}")
    list(APPEND kolo_absent_headers PATTERN "${header}.hpp" EXCLUDE PATTERN "kolo_${header}.h" EXCLUDE)
  endif()
endforeach()
install(DIRECTORY include/kolo "${PROJECT_BINARY_DIR}/include/kolo" DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}"
        COMPONENT kolo FILES_MATCHING PATTERN "*.hpp" PATTERN "*.h" ${kolo_absent_headers})
install(EXPORT kolo-targets NAMESPACE kolo:: DESTINATION "${kolo_cmake_dir}" COMPONENT kolo)
if(KOLO_HAS_TORCH)
  # A file of its own: find_package(kolo) without the component needs no LibTorch.
  install(TARGETS kolo_libtorch EXPORT kolo-libtorch-targets COMPONENT kolo)
  install(EXPORT kolo-libtorch-targets NAMESPACE kolo:: DESTINATION "${kolo_cmake_dir}" COMPONENT kolo)
endif()
get_property(kolo_tools GLOBAL PROPERTY KOLO_PROGRAMS_src/tools)
foreach(tool kolo-bench kolo-idle)
  if(TARGET ${tool})
    list(APPEND kolo_tools ${tool})
  endif()
endforeach()
if(kolo_tools)
  # Found beside their library wherever the prefix is moved to.
  file(RELATIVE_PATH kolo_lib_from_bin "/${CMAKE_INSTALL_BINDIR}" "/${CMAKE_INSTALL_LIBDIR}")
  set_target_properties(${kolo_tools} PROPERTIES INSTALL_RPATH "$ORIGIN/${kolo_lib_from_bin}")
  install(TARGETS ${kolo_tools} COMPONENT kolo)
endif()
if(KOLO_BUILD_TOOLS)
  install(PROGRAMS src/tools/kolo-timeline DESTINATION "${CMAKE_INSTALL_BINDIR}" COMPONENT kolo)
endif()
# All that is built of it, so that a build of little else can be installed.
add_custom_target(kolo_installed)
add_dependencies(kolo_installed kolo ${kolo_tools})
if(KOLO_HAS_TORCH)
  add_dependencies(kolo_installed kolo_libtorch)
endif()

# Users of a static library link what it links, found the way we found it.
set(KOLO_IS_SHARED ${BUILD_SHARED_LIBS})
configure_package_config_file(cmake/kolo-config.cmake.in kolo-config.cmake INSTALL_DESTINATION "${kolo_cmake_dir}"
                              NO_SET_AND_CHECK_MACRO)
write_basic_package_version_file(kolo-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES "${CMAKE_CURRENT_BINARY_DIR}/kolo-config.cmake" "${CMAKE_CURRENT_BINARY_DIR}/kolo-config-version.cmake"
              cmake/KoloFindDependencies.cmake DESTINATION "${kolo_cmake_dir}" COMPONENT kolo)

# The same for pkg-config. A static library's needs are its users' as well, so they are public there and the same
# `pkg-config --libs kolo` serves both.
set(kolo_pc_needs "-pthread")
set(kolo_pc_libraries "")
if(KOLO_HAS_MPI)
  get_target_property(kolo_mpi_libraries kolo_deps::mpi INTERFACE_LINK_LIBRARIES)
  list(APPEND kolo_pc_libraries ${kolo_mpi_libraries})
endif()
if(KOLO_HAS_UCX)
  list(APPEND kolo_pc_libraries -ldl)
endif()
if(KOLO_HAS_CUDA)
  list(APPEND kolo_pc_libraries "${kolo_nccl_library}" "${kolo_cudart}" -ldl -lrt)
endif()
foreach(library IN LISTS kolo_pc_libraries)
  # -L and -l: CMake's pkg-config module puts a path among the options, before what needs it.
  if(library MATCHES "^(/.*)/lib([^/]+)\\.(so|a)$")
    string(APPEND kolo_pc_needs " -L${CMAKE_MATCH_1} -l${CMAKE_MATCH_2}")
  else()
    string(APPEND kolo_pc_needs " ${library}")
  endif()
endforeach()
if(BUILD_SHARED_LIBS)
  # Where the loader does not look by itself a program needs to be told: as CMake's users are by their build tree.
  set(kolo_pc_rpath " -Wl,-rpath,\${libdir}")
  set(kolo_pc_requires "Requires.private: libhwy, libcrypto")
  set(kolo_pc_libs "-lkolo\nLibs.private: ${kolo_pc_needs}")
else()
  set(kolo_pc_rpath "")
  set(kolo_pc_requires "Requires: libhwy, libcrypto")
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
install(FILES "${CMAKE_CURRENT_BINARY_DIR}/kolo.pc" DESTINATION "${CMAKE_INSTALL_LIBDIR}/pkgconfig" COMPONENT kolo)
