graft_add_emulated_plugin(ngram-block SOURCES cuda/ngram_block_cuda.cu TEST cuda/emulated_test.cc)
