package main

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/internal/must"
)

// Words count without case and punctuation, and a letter that differs makes a text another one; float32's texts are
// judged, and int8's words.
func TestWordsThatAreHeard(t *testing.T) {
	said := []string{"Ask not, what your country can do.", "We have $5, and it's enough."} // 7 and 6 words
	exact := []string{" Ask not what your country can do.", " We have 5 and its enough!"}
	for _, c := range []struct {
		name           string
		float32, eight []string
		wer            float64
		equal          int
		met            bool
	}{
		{"all is heard", exact, exact, 0, 2, true},
		{"int8 hears other letters", exact, []string{" ask not what your country can do", exact[1]}, 0, 1, true},
		{"int8 hears another word, and one less", exact, []string{" Ask not what a country can.", exact[1]}, 2. / 13, 1,
			false},
		{"float32 is not the exported model", []string{exact[0], " We have 5 and it is enough!"}, exact, 0, 2, false},
	} {
		r := &wordsReport{References: said, Sounds: 2,
			Sides: []*wordsSide{{Texts: exact}, {Texts: c.float32}, {Texts: c.eight}}}
		o := must.Value(r.outcome())(t)
		if s := r.Sides[2]; math.Abs(s.WER-c.wer) > 1e-9 || s.Equal != c.equal || o.Met != c.met || r.Words != 13 {
			t.Errorf("%s: error rate %g, %d equal, met %t, of %d words; want %g, %d, %t, of 13", c.name, s.WER, s.Equal, o.Met,
				r.Words, c.wer, c.equal, c.met)
		}
	}
}

// Sounds and references are as many, and a folder that is missing or odd is named with what to do.
func TestSpokenFolder(t *testing.T) {
	cache := t.TempDir()
	t.Setenv("XDG_CACHE_HOME", cache)
	folder := filepath.Join(cache, "graft", "trained", trainedSpeech)
	if _, _, err := spoken(); !strings.Contains(err.Error(), folder) || fix(err) != "run make trained-models" {
		t.Errorf("without the folder: %v", err)
	}
	must.Succeed(t, os.MkdirAll(folder, 0o755))
	for _, c := range []struct {
		sounds, references string
		want               []string // nil: refused
	}{
		{"a.wav\nb.wav\n", "One.\nTwo.\n", []string{filepath.Join(folder, "a.wav"), filepath.Join(folder, "b.wav")}},
		{"a.wav\nb.wav\n", "One.\n", nil},
		{"a.wav\n", "One.\n", nil},
	} {
		for name, text := range map[string]string{"sounds.txt": c.sounds, "references.txt": c.references} {
			must.Succeed(t, os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600))
		}
		sounds, references, err := spoken()
		if c.want == nil && fix(err) == "" ||
			c.want != nil && (err != nil || !slices.Equal(sounds, c.want) || len(references) != len(sounds)) {
			t.Errorf("%q, %q: %v, %v, %v", c.sounds, c.references, sounds, references, err)
		}
	}
}

// fix is what an error says to do, "" where it says nothing.
func fix(err error) string {
	var d *diagnostic.Error
	if !errors.As(err, &d) {
		return ""
	}
	return d.Fix
}
