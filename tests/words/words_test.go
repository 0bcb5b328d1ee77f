// Package words holds the words of the project's texts to those of its field.
package words

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/opgraft/graft/internal/must"
)

const root = "../.."

// allowed is the file of those files in which private words still stand, one a line. It only shrinks.
const allowed = "allowed.txt"

var update = flag.Bool("update", false, "take files without private words off "+allowed)

// private are words that mean something else to everybody, or nothing, with what to say in their place.
// Forms are separated by "|"; each is found in prose, in names with capitals in the middle and in upper case.
var private = []struct{ forms, say string }{
	{"face|faces", "interface, signature, or inputs and outputs"},
	{"mend|mends|mended|mending", "fix"},
	{"drawn as|as drawn", "written as, exported as, left unchanged"},
	{"keeps", "stores, retains, holds; strategy for a choice of what the KV cache holds"},
	{"way of keeping|ways of keeping", "KV-cache strategy"},
	{"redraw|redrawn|redrawing", "variant, rewrite"},
	{"made inputs", "synthetic inputs"},
	{"the house", "architecture"},
	{"at hand", "installed, loaded, found"},
	{"as they lie|as it lies", "as stored, in place"},
	{"without a word", "by default, silently"},
	{"of which that", "a sentence of its own"},
}

// named are names that others gave.
var named = regexp.MustCompile(`(?i)hugging[ _-]?(?:" \+)?(?:\n\s*(?://|#|")? ?)?face|font-face`)

// spared are files whose words are not the project's to choose: figures as they were measured, and this package.
var spared = []string{"bench/results/", "tests/soak/results/", "tests/words/"}

type rule struct {
	begins string         // the first word, in lower case
	find   *regexp.Regexp // of a text from the letter before that word on
	say    string
}

// rules are the expressions of private: a form at the beginning of a word, or with a capital inside of one.
func rules() []rule {
	var list []rule
	for _, p := range private {
		for form := range strings.SplitSeq(p.forms, "|") {
			first, rest := form[:1], strings.ReplaceAll(form[1:], " ", `\s+`)
			upper := strings.ToUpper(first)
			expression := fmt.Sprintf(`(?s)^(?:(?:[^A-Za-z]?%s|.?%s)%s(?:$|[^a-z])|[^A-Za-z]?%s(?:$|[^A-Za-z]))`,
				first, upper, rest, strings.ReplaceAll(strings.ToUpper(form), " ", `\s+`))
			list = append(list, rule{strings.Fields(form)[0], regexp.MustCompile(expression), p.say})
		}
	}
	return list
}

// findings are the private words of a text, each with its line and what to say.
func findings(text string, rules []rule) []string {
	text = named.ReplaceAllStringFunc(text, func(name string) string {
		return regexp.MustCompile(`[^\n]`).ReplaceAllString(name, "_")
	})
	var list []string
	lower := bytes.ToLower([]byte(strings.ToValidUTF8(text, "?")))
	if len(lower) != len(text) { // a capital with another length in lower case: none is in a word of the list
		lower = []byte(text)
	}
	for _, r := range rules {
		for after := 0; ; {
			i := bytes.Index(lower[after:], []byte(r.begins))
			if i < 0 {
				break
			}
			start := after + i
			after = start + 1
			// the letter before it counts, and no form with its blanks is as long as what follows
			near := text[max(0, start-1):min(len(text), start+200)]
			at := r.find.FindStringIndex(near)
			if at == nil {
				continue
			}
			word := strings.TrimFunc(near[at[0]:at[1]],
				func(c rune) bool { return (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') })
			list = append(list, fmt.Sprintf("%d: %s: say %s", 1+strings.Count(text[:start], "\n"),
				strings.Join(strings.Fields(word), " "), r.say))
		}
	}
	return list
}

// TestPrivateWords reads every text file that git knows.
func TestPrivateWords(t *testing.T) {
	cmd := exec.Command("git", "ls-files", "-z")
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("git ls-files: %v; the test needs a checkout", err)
	}
	text := must.Value(os.ReadFile(allowed))(t)
	standing := strings.Fields(string(text))
	all, rules := strings.Split(strings.Trim(string(out), "\x00"), "\x00"), rules()
	var with []string
	for _, name := range all {
		data, err := os.ReadFile(filepath.Join(root, name))
		if os.IsNotExist(err) { // deleted, and not committed yet
			continue
		}
		must.Succeed(t, err)
		if bytes.IndexByte(data, 0) >= 0 ||
			slices.ContainsFunc(spared, func(s string) bool { return strings.HasPrefix(name, s) }) {
			continue
		}
		found := findings(string(data), rules)
		if len(found) > 0 {
			with = append(with, name)
		}
		if !slices.Contains(standing, name) {
			for _, f := range found {
				t.Errorf("%s:%s", name, f)
			}
		}
	}
	stale := slices.DeleteFunc(slices.Clone(standing), func(name string) bool { return slices.Contains(with, name) })
	if len(stale) == 0 {
		return
	}
	if !*update {
		t.Errorf("%s lists files without private words: take them out, or run go test ./tests/words -update:\n%s", allowed,
			strings.Join(stale, "\n"))
		return
	}
	left := slices.DeleteFunc(standing, func(name string) bool { return slices.Contains(stale, name) })
	must.Succeed(t, os.WriteFile(allowed, []byte(strings.Join(append(left, ""), "\n")), 0o644))
}

// TestFindings shows what is a private word and what is not.
func TestFindings(t *testing.T) {
	for text, want := range map[string]int{
		"a face of it": 1, "outFace": 1, "FaceOf(x)": 1, "faces_test": 1, "Face": 1, "face": 1, "FACE_COUNT": 1,
		"mends:": 1, "drawn\n// as": 0,
		"drawn\nas":                      1,
		"interface, surface, interfaces": 0, "Hugging Face's, HuggingFace, huggingface, Hugging\n\t// Face computes": 0,
		"recommends, amended, commend": 0,
		"GoKeeps":                      1, "keeper, Keep, upkeeps": 0, "what is at hand": 1, "stays as drawn": 1,
	} {
		if got := findings(text, rules()); len(got) != want {
			t.Errorf("%q: found %q, expected %d", text, got, want)
		}
	}
}
