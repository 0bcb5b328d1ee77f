package main

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/opgraft/graft/host/generate"
	"github.com/opgraft/graft/host/generate/search"
	"github.com/opgraft/graft/host/generate/text"
	"github.com/opgraft/graft/internal/must"
)

// TestTextStream: texts are shown as they grow, in the order of the inputs, whatever the order of their tokens.
func TestTextStream(t *testing.T) {
	tok := must.Value(text.Open("../../models/tiny-gpt2"))(t)
	g := &generate.Generator{Tokenizer: tok}
	options := search.Default()
	var shown strings.Builder
	s := newTextStream(&shown, func() *generate.Incremental { return g.Incremental(options) })
	ids := func(line string) []int64 {
		return must.Value(tok.Encode(t.Context(), line, text.EncodeOptions{OmitSpecialTokens: true}))(t)
	}
	results := []string{"the river\tand the sea", "of\nmen", "", "\x1b[2J stays"}
	chosen := func(index int) {
		for _, id := range ids(results[index]) {
			s.chosen(index, int32(id))
		}
	}
	say := func(index int) {
		t.Helper()
		must.Succeed(t, s.write(generate.Result{Index: index}))
	}
	want := func(text string) {
		t.Helper()
		if shown.String() != text {
			t.Fatalf("found %q, want %q", shown.String(), text)
		}
	}
	chosen(1)
	want("")
	for _, id := range ids(results[0])[:2] {
		s.chosen(0, int32(id))
	}
	if shown.String() == "" || strings.Contains(shown.String(), "men") {
		t.Errorf("found %q while the first text grows", shown.String())
	}
	for _, id := range ids(results[0])[2:] {
		s.chosen(0, int32(id))
	}
	want("the river and the sea")
	say(0)
	want("the river and the sea\nof men")
	say(1)
	say(2)
	chosen(3)
	say(3)
	want("the river and the sea\nof men\n\n\\x1b[2J stays\n")
	s.end()
	s.chosen(4, int32(ids("men")[0]))
	s.end() // where it was interrupted
	if text := shown.String(); strings.Contains(text, "stays\n\n") || !strings.HasSuffix(text, "\n") {
		t.Errorf("found %q", text)
	}
}

// TestStreamsOnATerminal: what one prompt becomes is on the screen once, and is what a file holds.
func TestStreamsOnATerminal(t *testing.T) {
	args := []string{"generate", "../../models/tiny-gpt2", "the river", "--max-new-tokens", "20"}
	for _, more := range [][]string{nil, {"--do-sample", "--seed", "7"}, {"--draft", "lookup"}, {"--beam", "2"}} {
		args := append(args, more...)
		code, out, talk := graft(args...)
		if code != 0 {
			t.Fatalf("%q: exit code %d, %s", args, code, talk)
		}
		x := openTerminal(t)
		cmd := exec.Command(os.Args[0], args...)
		x.start(cmd)
		if err := cmd.Wait(); err != nil {
			t.Errorf("%q: %v: %s", args, err, x.shown())
		}
		x.await(strings.TrimSpace(out), 1)
		must.Equal(t, strings.Count(x.screen(), strings.TrimSpace(out)), 1, args, x.screen())
	}
}
