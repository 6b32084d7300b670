# The command's version, its manual pages and completion (both made by running it), and where all go.
set(version_source ${CMAKE_CURRENT_BINARY_DIR}/version.cpp)
add_custom_target(wisp_version BYPRODUCTS ${version_source} VERBATIM
  COMMAND ${CMAKE_COMMAND} -D SOURCE=${PROJECT_SOURCE_DIR} -D VERSION=${PROJECT_VERSION}
    -D OUTPUT=${version_source} -P ${PROJECT_SOURCE_DIR}/cmake/version.cmake)
add_dependencies(wisp wisp_version)
target_sources(wisp PRIVATE ${version_source})
# Alone: the rest is the same from commit to commit, and the compiler's cache knows it.
set_source_files_properties(${version_source} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON
  INCLUDE_DIRECTORIES ${PROJECT_SOURCE_DIR}/cli)

if(SKBUILD)
  install(TARGETS wisp RUNTIME DESTINATION ${SKBUILD_SCRIPTS_DIR})
  return()
endif()
install(TARGETS wisp RUNTIME COMPONENT command)
# A program for another machine cannot be asked here.
if(WISP_FUZZ OR (CMAKE_CROSSCOMPILING AND NOT CMAKE_CROSSCOMPILING_EMULATOR))
  return()
endif()
set(pages ${CMAKE_CURRENT_BINARY_DIR}/share/man)
set(completions ${CMAKE_CURRENT_BINARY_DIR}/share/completions)
add_custom_command(OUTPUT ${completions}/stamp DEPENDS wisp VERBATIM
  COMMAND ${CMAKE_COMMAND} -E rm -rf ${pages} ${completions}
  COMMAND ${CMAKE_COMMAND} -E make_directory ${pages} ${completions}
  COMMAND wisp manual ${pages}
  COMMAND wisp completion bash > ${completions}/wisp
  COMMAND wisp completion zsh > ${completions}/_wisp
  COMMAND wisp completion fish > ${completions}/wisp.fish
  COMMAND ${CMAKE_COMMAND} -E touch ${completions}/stamp)
add_custom_target(wisp_pages ALL DEPENDS ${completions}/stamp)
install(DIRECTORY ${pages}/ DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 COMPONENT command)
install(FILES ${completions}/wisp
  DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions COMPONENT command)
install(FILES ${completions}/_wisp
  DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions COMPONENT command)
install(FILES ${completions}/wisp.fish
  DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d COMPONENT command)
