// Package readme runs what the documents tell a reader to run: every shell command, and every
// program in Go, Python and C, of README.md, CONTRIBUTING.md and docs/. Its tests also follow every
// link. A command that a test cannot run (it needs root, a network or another repository) stands in
// a short list with the reason.
package readme
