# What an installation has beside the targets, which their own folders install, and the Debian packages: one for each component.
# Preset release installs below /usr; `./dev package` makes the packages.
include(CMakePackageConfigHelpers)
include(GNUInstallDirs)

# All that the packages hold, and nothing else.
add_custom_target(package_content DEPENDS gradgate gradgated gradgatectl)
foreach(target gradgated_man_page gradgatectl_man_page gradgatectl_completion)
  if(TARGET ${target})
    add_dependencies(package_content ${target})
  endif()
endforeach()

# libgradgate-dev: for find_package(gradgate) and pkg-config.
set(cmake_folder ${CMAKE_INSTALL_LIBDIR}/cmake/gradgate)
install(EXPORT gradgate FILE gradgateConfig.cmake NAMESPACE gradgate:: DESTINATION ${cmake_folder} COMPONENT libgradgate-dev)
write_basic_package_version_file(${CMAKE_BINARY_DIR}/gradgateConfigVersion.cmake COMPATIBILITY SameMajorVersion)
install(FILES ${CMAKE_BINARY_DIR}/gradgateConfigVersion.cmake DESTINATION ${cmake_folder} COMPONENT libgradgate-dev)
file(RELATIVE_PATH GRADGATE_PC_PREFIX /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
configure_file(${PROJECT_SOURCE_DIR}/deploy/gradgate.pc.in ${CMAKE_BINARY_DIR}/gradgate.pc @ONLY)
install(FILES ${CMAKE_BINARY_DIR}/gradgate.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT libgradgate-dev)

# gradgated as a service. The unit names /usr/bin, so this comes with the package alone and not with every `cmake --install`.
function(install_service file folder name)
  install(FILES ${PROJECT_SOURCE_DIR}/deploy/systemd/${file} DESTINATION ${folder} RENAME ${name} COMPONENT gradgated EXCLUDE_FROM_ALL)
endfunction()
install_service(gradgated.service /lib/systemd/system gradgated.service)
install_service(gradgate.sysusers /usr/lib/sysusers.d gradgate.conf)
install_service(gradgate.tmpfiles /usr/lib/tmpfiles.d gradgate.conf)
install_service(gradgated.flags /etc/gradgate gradgated.flags)
install(FILES ${PROJECT_SOURCE_DIR}/daemon/README.md DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/gradgated COMPONENT gradgated)
install(FILES ${PROJECT_SOURCE_DIR}/deploy/systemd/README.md DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/gradgated
  RENAME systemd.md COMPONENT gradgated)
install(FILES ${PROJECT_SOURCE_DIR}/client/README.md DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/gradgatectl COMPONENT gradgatectl)

set(CPACK_GENERATOR DEB)
set(CPACK_COMPONENTS_ALL gradgated gradgatectl libgradgate1 libgradgate-dev)
foreach(component ${CPACK_COMPONENTS_ALL})
  install(FILES ${PROJECT_SOURCE_DIR}/deploy/debian/copyright DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/${component}
    COMPONENT ${component} EXCLUDE_FROM_ALL)
  string(TOUPPER ${component} upper)
  set(CPACK_DEBIAN_${upper}_PACKAGE_NAME ${component})
endforeach()
set(CPACK_COMPONENTS_GROUPING ONE_PER_GROUP)
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_PACKAGE_CONTACT "gradgate developers <gradgate@example.invalid>")
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON) # of libgradgate1, the one with a library
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS_POLICY >=)

set(CPACK_COMPONENT_GRADGATED_DESCRIPTION "counts the gradient reductions of data-parallel trainers: daemon
One per node. It reads what trainers publish, answers over gRPC and for
Prometheus, and tells what is wrong. Training never depends on it.")
set(CPACK_COMPONENT_GRADGATECTL_DESCRIPTION "counts the gradient reductions of data-parallel trainers: command line
Shows jobs, ranks and windows, finds what is wrong, plans and sets policies.")
set(CPACK_COMPONENT_LIBGRADGATE1_DESCRIPTION "one gradient reduction per optimizer step: library inside trainers
The C interface of gradgate: windows, reductions, ballots and counts.")
set(CPACK_COMPONENT_LIBGRADGATE-DEV_DESCRIPTION "one gradient reduction per optimizer step: headers
What C and C++ trainers are compiled with; files for CMake and pkg-config.")
set(CPACK_DEBIAN_GRADGATED_PACKAGE_SECTION admin)
set(CPACK_DEBIAN_GRADGATED_PACKAGE_DEPENDS
  "systemd-standalone-sysusers | systemd-sysusers, systemd-standalone-tmpfiles | systemd-tmpfiles")
set(CPACK_DEBIAN_GRADGATED_PACKAGE_SUGGESTS gradgatectl)
foreach(script conffiles postinst postrm prerm)
  list(APPEND CPACK_DEBIAN_GRADGATED_PACKAGE_CONTROL_EXTRA ${PROJECT_SOURCE_DIR}/deploy/debian/${script})
endforeach()
set(CPACK_DEBIAN_GRADGATECTL_PACKAGE_SECTION admin)
set(CPACK_DEBIAN_LIBGRADGATE1_PACKAGE_SECTION libs)
set(CPACK_DEBIAN_LIBGRADGATE-DEV_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_LIBGRADGATE-DEV_PACKAGE_DEPENDS "libgradgate1 (= ${PROJECT_VERSION})")
include(CPack)
