# Weights computed from weights, in float64: for the fold hooks of the plugins beside this folder.
find_package(Eigen3 3.3 REQUIRED NO_MODULE)
add_library(latent_fold OBJECT "${CMAKE_CURRENT_LIST_DIR}/fold.cc")
target_compile_features(latent_fold PUBLIC cxx_std_17)
target_include_directories(latent_fold PUBLIC "${CMAKE_CURRENT_LIST_DIR}")
target_link_libraries(latent_fold PRIVATE Eigen3::Eigen)
target_compile_options(latent_fold PRIVATE
  -O3 -Wall -Wextra -ffunction-sections -fdata-sections -fno-math-errno ${GRAFT_SANITIZE_FLAGS})
set_target_properties(latent_fold PROPERTIES
  CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON POSITION_INDEPENDENT_CODE ON)

if(GRAFT_TESTS)
  add_executable(latent_fold_tests
    "${CMAKE_CURRENT_LIST_DIR}/tests/fold_test.cc" $<TARGET_OBJECTS:latent_fold>)
  target_include_directories(latent_fold_tests PRIVATE "${CMAKE_CURRENT_LIST_DIR}")
  target_compile_features(latent_fold_tests PRIVATE cxx_std_17)
  target_compile_options(latent_fold_tests PRIVATE -O2 -g -Wall -Wextra ${GRAFT_SANITIZE_FLAGS})
  target_link_options(latent_fold_tests PRIVATE ${GRAFT_SANITIZE_FLAGS})
  target_link_libraries(latent_fold_tests PRIVATE Eigen3::Eigen GTest::gtest_main Threads::Threads)
  add_test(NAME latent-fold COMMAND latent_fold_tests)
endif()
