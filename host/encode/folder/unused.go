package folder

// ofModel are the keys of config.json that are read, each with what reads it beside the model's class in Python. All
// others are that class's own, and there is no list of them: what they say of its arithmetic stands in the graph, what
// they say of generation and training changes no vector and no score. So a key that is not here is passed over, in this
// file alone.
var ofModel = map[string]string{
	"architectures":                        "CrossEncoder: what the model was made for",
	"hidden_size":                          "Pooling: the width of what it pools",
	"id2label":                             "pipelines: the names of labels",
	"label2id":                             "zero-shot classification: the label of entailment",
	"max_position_embeddings":              "Transformer: the greatest length",
	"model_type":                           "StaticModel: a folder of model2vec",
	"num_labels":                           "pipelines and CrossEncoder: how many labels there are",
	"pad_token_id":                         "the graph: where a row ends",
	"problem_type":                         "pipelines: what makes scores of logits",
	"sbert_ce_default_activation_function": "CrossEncoder: what makes scores of logits",
	"sentence_transformers":                "CrossEncoder: what makes scores of logits, and its version",
	"tokenizer_class":                      "AutoTokenizer, where tokenizer_config.json names none",
	"transformers_version":                 "which version's tokenizer is meant",
	"vocab_size":                           "the graph: which output is of the vocabulary",
	"word_embed_proj_dim":                  "Pooling: the width of what it pools is not hidden_size",
}

// unused are the keys that change no vector and no score, by the file or the module that has them, each with the
// reason. A key that is neither here nor read is refused.
var unused = map[string]map[string]string{
	"modules.json": {
		"idx":  "modules are applied in the order of the list",
		"name": "names a module in Python",
	},
	"config_sentence_transformers.json": {
		"keep_in_fp32_modules": "layers that PyTorch computes in float32; the graph has its own types",
		"requirements":         "versions of Python packages",
	},
	"config_sentence_transformers.json __version__": {
		"transformers": "the tokenizer's configuration is read as the version in config.json reads it",
		"pytorch":      "of the program that wrote the folder",
	},
	"config.json sentence_transformers": {},
	"sentence_bert_config.json": {
		"unpad_inputs": "whether PyTorch computes padding, which no vector depends on",
	},
	"sentence_bert_config.json processing_kwargs": {
		"audio": "of other inputs than text",
		"image": "of other inputs than text",
		"video": "of other inputs than text",
	},
	"Dropout": {
		"dropout": "does nothing but in training",
	},
	"SparseAutoEncoder": {
		"k_aux":          "of training",
		"dead_threshold": "of training",
	},
	"SparseStaticEmbedding": {
		"frozen": "of training",
	},
	"config.json of model2vec": {
		"apply_pca":               "how the weights were made",
		"apply_zipf":              "how the weights were made",
		"embedding_dtype":         "the file of weights says it",
		"hidden_dim":              "the file of weights says it",
		"pooling":                 "how the weights were made",
		"seq_length":              "of the model that the weights were made with",
		"sif_coefficient":         "how the weights were made",
		"tokenizer_name":          "of the model that the weights were made with",
		"vocabulary_quantization": "the file of weights says it",
	},
	"tokenizer_config.json": {
		"auto_map":                      "names a tokenizer's class in Python; tokenizer.json is what is used",
		"backend":                       "names a library in Python",
		"chat_template":                 "of generation",
		"device_map":                    "where PyTorch puts a model",
		"do_basic_tokenize":             "of tokenizers without tokenizer.json",
		"errors":                        "how bytes become text",
		"from_slow":                     "how tokenizer.json was made",
		"is_local":                      "where a folder was loaded from",
		"legacy":                        "of tokenizers without tokenizer.json",
		"local_files_only":              "where a folder was loaded from",
		"max_length":                    "an argument of an earlier call",
		"name_or_path":                  "where a folder was loaded from",
		"never_split":                   "of tokenizers without tokenizer.json",
		"pad_to_multiple_of":            "an argument of an earlier call",
		"pad_token_id":                  "padding is hidden",
		"pad_token_type_id":             "padding is hidden",
		"processor_class":               "names a class in Python",
		"remove_space":                  "of tokenizers without tokenizer.json",
		"return_token_type_ids":         "an argument of an earlier call",
		"sp_model_kwargs":               "of tokenizers without tokenizer.json",
		"spaces_between_special_tokens": "how tokens become text",
		"special_tokens_map_file":       "where a folder was loaded from",
		"stride":                        "an argument of an earlier call",
		"tokenizer_file":                "where a folder was loaded from",
		"trim_offsets":                  "places of tokens in the text, which no encoder reads",
		"truncation_strategy":           "an argument of an earlier call",
		"trust_remote_code":             "whether Python may run the folder's programs",
		"unk_id":                        "stands in tokenizer.json",
		"use_default_system_prompt":     "of generation",
		"use_fast":                      "which of Python's tokenizers is used; tokenizer.json is the fast one",
		"vocab_type":                    "names the library that the vocabulary was made with",
		"wordpieces_prefix":             "stands in tokenizer.json",
		"tokenizer_name_or_path":        "where a folder was loaded from",
	},
}
