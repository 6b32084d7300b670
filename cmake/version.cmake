# Writes VERSION and the commit into OUTPUT, a source file, when either has changed. Run at every build:
# a commit is not known when the build is configured.
#   cmake -D SOURCE=… -D VERSION=… -D OUTPUT=… -P version.cmake
# An archive has no repository: git wrote the commit into commit.txt when it made it.
file(STRINGS ${SOURCE}/cmake/commit.txt commit LIMIT_COUNT 1)
if(commit MATCHES "Format")
  set(commit "")
  if(EXISTS ${SOURCE}/.git)
    execute_process(COMMAND git -C ${SOURCE} describe --always --dirty --abbrev=40 --exclude=*
      OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  endif()
endif()
if(commit MATCHES "^([0-9a-f]+)(-dirty)?$")
  string(SUBSTRING ${CMAKE_MATCH_1} 0 12 short)
  set(commit ${short}${CMAKE_MATCH_2})
else()
  set(commit "")
endif()
set(text "#include \"version.hpp\"

namespace wisp::cli {

const char* const kVersion = \"${VERSION}\";
const char* const kCommit = \"${commit}\";

}  // namespace wisp::cli
")
if(EXISTS ${OUTPUT})
  file(READ ${OUTPUT} before)
endif()
if(NOT text STREQUAL "${before}")
  file(WRITE ${OUTPUT} "${text}")
endif()
