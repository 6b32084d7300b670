# The library where other programs find it: by find_package(wisp) and by pkg-config. The command's part
# is in command.cmake. A wheel holds neither headers nor library.
include(GNUInstallDirs)
if(SKBUILD OR NOT PROJECT_IS_TOP_LEVEL)
  return()
endif()
include(CMakePackageConfigHelpers)

install(TARGETS wisp_core EXPORT wispTargets ARCHIVE COMPONENT library
  INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(DIRECTORY include/wisp DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT library)

set(cmake_folder ${CMAKE_INSTALL_LIBDIR}/cmake/wisp)
install(EXPORT wispTargets NAMESPACE wisp:: DESTINATION ${cmake_folder} COMPONENT library)
configure_package_config_file(cmake/wispConfig.cmake.in wispConfig.cmake
  INSTALL_DESTINATION ${cmake_folder})
# Before 1.0 a minor version may change anything.
write_basic_package_version_file(wispConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/wispConfig.cmake
  ${CMAKE_CURRENT_BINARY_DIR}/wispConfigVersion.cmake
  DESTINATION ${cmake_folder} COMPONENT library)

# The prefix is known when it is installed, not before: `make install PREFIX=…` names it then.
install(CODE "
  set(version ${PROJECT_VERSION})
  set(libdir ${CMAKE_INSTALL_LIBDIR})
  set(includedir ${CMAKE_INSTALL_INCLUDEDIR})
  configure_file(${PROJECT_SOURCE_DIR}/cmake/wisp.pc.in
    \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_LIBDIR}/pkgconfig/wisp.pc\" @ONLY)
  " COMPONENT library)
