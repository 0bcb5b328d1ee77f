// Package text turns text into token ids and back, in pure Go.
//
// Open reads what a model's folder holds: tokenizer.json of Hugging Face's
// tokenizers (byte-level BPE, BPE with byte fallback, Unigram, WordPiece,
// WordLevel), or Marian's source.spm, target.spm and vocab.json. Ids and decoded
// text equal those of Hugging Face's tokenizers 0.22 and, for Marian, of
// transformers 4.57 with sentencepiece 0.2: the tests compare 10,000 lines of
// varied Unicode for files of each kind.
//
// The way of a text, a file each:
//
//	added.go        added and special tokens are cut out
//	normalize.go    what is left is normalised (unicode forms, charsmap, Bert...)
//	pretokenize.go  and split into words (patterns, whitespace, punctuation...)
//	bpe.go, unigram.go, wordpiece.go   a word becomes ids
//	template.go     special tokens are put around
//	decode.go       ids become text again
//
// A Tokenizer is safe for concurrent use.
package text
