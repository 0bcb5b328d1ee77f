// Package search decides what is generated: greedy search, beam search, diverse (group) beam
// search and sampling over scores that something else computes. It holds no model, no cache and
// no thread: tokens go in, requests for a step tail come out, candidates go in, and moves (which
// row follows which, with which token) come out.
//
// The meaning of every option is that of Hugging Face transformers' generate, token for token.
package search
