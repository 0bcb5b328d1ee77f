graft_add_emulated_plugin(logits-top-k SOURCES cuda/logits_top_k_cuda.cu TEST cuda/emulated_test.cc
  INCLUDES "${CMAKE_SOURCE_DIR}/plugins/ngram-block")
