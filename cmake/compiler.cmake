# How everything is compiled: the language, the warnings, the sanitizers.

set(CMAKE_CXX_STANDARD 23)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)

if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Build type" FORCE)
endif()

set(WISP_SANITIZE "" CACHE STRING "Sanitizers, as a list: address;undefined or thread")
option(WISP_WERROR "Warnings are errors" ON)
option(WISP_PYTHON "Build the Python module; without it, only where nanobind is found" OFF)
option(WISP_FUZZ "Build the fuzz targets (clang only)" OFF)

find_program(WISP_CCACHE ccache)
if(WISP_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # Paths relative to the source tree: another clone on the same machine finds what this one compiled.
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${PROJECT_SOURCE_DIR}
      CCACHE_NOHASHDIR=true CCACHE_SLOPPINESS=pch_defines,time_macros ${WISP_CCACHE})
endif()

# Link privately: warnings are ours, never our users'.
add_library(wisp_warnings INTERFACE)
target_compile_options(wisp_warnings INTERFACE
  -Wall -Wextra -Wpedantic -Wconversion -Wshadow -Wnon-virtual-dtor -Woverloaded-virtual
  -Wcast-align -Wimplicit-fallthrough -Wextra-semi -Wundef
  $<$<BOOL:${WISP_WERROR}>:-Werror>)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # GCC 12 reports std::string concatenation as overlapping copies (GCC bug 105651), and growing a
  # vector of bytes as writing past its end (GCC bug 105329).
  target_compile_options(wisp_warnings INTERFACE -Wduplicated-cond -Wlogical-op -Wno-restrict
    -Wno-stringop-overflow -Wno-stringop-overread -Wno-array-bounds)
  if(WISP_SANITIZE)
    # Instrumentation hides initialisations from the optimiser; the release build keeps the warning.
    target_compile_options(wisp_warnings INTERFACE -Wno-maybe-uninitialized)
  endif()
else()
  # Clang counts sign conversions under -Wconversion, GCC does not; GCC is the judge.
  target_compile_options(wisp_warnings INTERFACE -Wno-sign-conversion)
endif()

if(WISP_SANITIZE)
  list(JOIN WISP_SANITIZE "," sanitizers)
  add_compile_options(-fsanitize=${sanitizers} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  add_link_options(-fsanitize=${sanitizers})
  if("address" IN_LIST WISP_SANITIZE AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # Each check names its place in the source. In a program that can be loaded anywhere these are
    # millions of relocations, at every start, and tests start it thousands of times.
    add_link_options(-no-pie)
  endif()
endif()
