# gg_man_page(PROGRAM target SECTION n ABOUT text ALSO page(n)): a manual page of what the program's own --help says, and that of its
# commands; made when the program is built, and installed with its component, which has the program's name. gg_completion(PROGRAM target):
# the same for the shells.

if(NOT CMAKE_SCRIPT_MODE_FILE)
  include(GNUInstallDirs)
  find_program(AWK awk REQUIRED)
  set(GG_MAN_PAGE_SCRIPT ${CMAKE_CURRENT_LIST_FILE})
  set(GG_MAN_PAGE_AWK ${CMAKE_CURRENT_LIST_DIR}/man_page.awk)

  function(gg_man_page)
    cmake_parse_arguments(ARG "" "PROGRAM;SECTION;ABOUT;ALSO" "" ${ARGN})
    set(page ${CMAKE_CURRENT_BINARY_DIR}/${ARG_PROGRAM}.${ARG_SECTION})
    add_custom_command(OUTPUT ${page} DEPENDS ${ARG_PROGRAM} ${GG_MAN_PAGE_SCRIPT} ${GG_MAN_PAGE_AWK} VERBATIM
      COMMAND ${CMAKE_COMMAND} -DPROGRAM=$<TARGET_FILE:${ARG_PROGRAM}> -DNAME=${ARG_PROGRAM} -DSECTION=${ARG_SECTION}
              -DABOUT=${ARG_ABOUT} -DALSO=${ARG_ALSO} -DAWK=${AWK} -DSCRIPT=${GG_MAN_PAGE_AWK}
              -DVERSION=${PROJECT_VERSION} -DPAGE=${page} -P ${GG_MAN_PAGE_SCRIPT})
    add_custom_target(${ARG_PROGRAM}_man_page ALL DEPENDS ${page})
    install(FILES ${page} DESTINATION ${CMAKE_INSTALL_MANDIR}/man${ARG_SECTION} COMPONENT ${ARG_PROGRAM})
  endfunction()

  function(gg_completion)
    cmake_parse_arguments(ARG "" "PROGRAM" "" ${ARGN})
    set(made)
    foreach(place bash:bash-completion/completions/${ARG_PROGRAM} zsh:zsh/site-functions/_${ARG_PROGRAM}
            fish:fish/vendor_completions.d/${ARG_PROGRAM}.fish)
      string(REGEX MATCH "^[a-z]+" shell ${place})
      string(REGEX REPLACE "^[a-z]+:" "" path ${place})
      set(script ${CMAKE_CURRENT_BINARY_DIR}/${path})
      get_filename_component(folder ${path} DIRECTORY)
      file(MAKE_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR}/${folder})
      add_custom_command(OUTPUT ${script} DEPENDS ${ARG_PROGRAM} COMMAND ${ARG_PROGRAM} completion ${shell} > ${script})
      install(FILES ${script} DESTINATION ${CMAKE_INSTALL_DATADIR}/${folder} COMPONENT ${ARG_PROGRAM})
      list(APPEND made ${script})
    endforeach()
    add_custom_target(${ARG_PROGRAM}_completion ALL DEPENDS ${made})
  endfunction()
  return()
endif()

# Run with -P from here on. Of the program's --help, or with `command` of that command's.
function(help variable command)
  separate_arguments(words UNIX_COMMAND "${command}")
  execute_process(COMMAND ${PROGRAM} ${words} --help COMMAND ${AWK} -v name=${NAME} -v command=${command} -f ${SCRIPT}
                  OUTPUT_VARIABLE text COMMAND_ERROR_IS_FATAL ANY)
  set(${variable} "${text}" PARENT_SCOPE)
endfunction()

help(text "")
string(TOUPPER ${NAME} title)
set(page ".TH ${title} ${SECTION} \"\" \"gradgate ${VERSION}\" \"gradgate\"\n.nh\n.ad l\n.SH NAME\n${NAME} \\- ${ABOUT}\n${text}")
execute_process(COMMAND ${PROGRAM} completion bash OUTPUT_VARIABLE script ERROR_QUIET RESULT_VARIABLE result)
if(result EQUAL 0)
  string(REGEX MATCHALL "\n    '[a-z]+[ a-z]*'\\) words=" commands "${script}")
  string(APPEND page ".SH COMMANDS\n")
  foreach(line IN LISTS commands)
    string(REGEX MATCH "'([ a-z]+)'" quoted "${line}")
    help(text "${CMAKE_MATCH_1}")
    string(APPEND page "${text}")
  endforeach()
endif()
string(REGEX REPLACE "([a-z]+)(\\([0-9]\\))" ".BR \\1 \\2" also "${ALSO}")
string(APPEND page ".SH SEE ALSO\n${also}\n")
file(WRITE ${PAGE} "${page}")
