package text

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/opgraft/graft/host/base/threads"
	"github.com/opgraft/graft/internal/must"
)

// cost runs f and refuses gigabytes and minutes of processor time.
func cost(t *testing.T, what string, f func()) {
	t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	start := threads.ProcessorTime()
	f()
	runtime.ReadMemStats(&after)
	if bytes := after.TotalAlloc - before.TotalAlloc; bytes > 400<<20 {
		t.Errorf("%s: allocated %d MB", what, bytes>>20)
	}
	if took := threads.ProcessorTime() - start; took > time.Minute {
		t.Errorf("%s: took %v", what, took)
	}
}

// sequence is n times the same component.
func sequence(kind string, n int, component string) string {
	return fmt.Sprintf(`{"type":"Sequence","%s":[%s]}`, kind, strings.TrimSuffix(strings.Repeat(component+",", n), ","))
}

// TestGrowth: no tokenizer makes a text much longer, whatever its components do one after the other.
func TestGrowth(t *testing.T) {
	double := `{"type":"Replace","pattern":{"String":"a"},"content":"aaaaaaaaaa"}`
	long := strings.Repeat("b", 4096)
	for name, c := range map[string]struct {
		parts map[string]string
		text  string
		want  string
	}{
		"ten Replace": {map[string]string{"normalizer": sequence("normalizers", 10, double)}, "a",
			"its Replace makes a text of 1 bytes more than 16 times as long"},
		"Replace by regex": {map[string]string{"normalizer": sequence("normalizers", 10,
			`{"type":"Replace","pattern":{"Regex":"."},"content":"aaaaaaaaaa"}`)}, "a", "its Replace makes"},
		"one Replace": {map[string]string{"normalizer": `{"type":"Replace","pattern":{"String":"a"},"content":"` + long +
			`"}`}, strings.Repeat("a", 100_000), "its Replace makes a text of 100000 bytes"},
		"empty matches": {map[string]string{"normalizer": sequence("normalizers", 3,
			`{"type":"Replace","pattern":{"Regex":"()"},"content":"`+long+`"}`)}, "aaaa", "its Replace makes"},
		"Prepend": {map[string]string{"normalizer": sequence("normalizers", 100,
			`{"type":"Prepend","prepend":"`+long+`"}`)}, "a", "its Prepend makes"},
		"ByteLevel": {map[string]string{"normalizer": sequence("normalizers", 40, `{"type":"ByteLevel"}`)}, "\u00e9",
			"its normalizer makes"},
		"ByteLevel words": {map[string]string{"pre_tokenizer": sequence("pretokenizers", 40,
			`{"type":"ByteLevel","use_regex":false}`)}, "\u00e9", "its ByteLevel makes"},
		"prefix spaces": {map[string]string{"pre_tokenizer": sequence("pretokenizers", 60,
			`{"type":"ByteLevel","use_regex":true}`)}, strings.Repeat("a1", 50_000), "its ByteLevel "},
		"forms": {map[string]string{"normalizer": `{"type":"Sequence","normalizers":[{"type":"Replace","pattern":{"String":"a"},"content":"\ufdfa\ufdfa\ufdfa\ufdfa\ufdfa"},{"type":"NFKC"}]}`}, strings.Repeat("a", 100_000), "before a Unicode form"},
		"charsmap": {map[string]string{"normalizer": `{"type":"Precompiled","precompiled_charsmap":"` +
			charsmapOf('a', long) + `"}`}, strings.Repeat("a", 100_000), "its Precompiled makes"},
		"Replace and back": {map[string]string{"normalizer": sequence("normalizers", 3,
			`{"type":"Replace","pattern":{"String":"a"},"content":"aa"}`)}, "aaaa", ""},
		"Arabic ligatures": {map[string]string{"normalizer": `{"type":"NFKC"}`}, strings.Repeat("\ufdfa", 50_000), ""},
	} {
		cost(t, name, func() {
			codec, _, err := read([]byte(tiny(c.parts)))
			if err == nil {
				_, err = (&Tokenizer{codec: codec}).Encode(t.Context(), c.text, EncodeOptions{})
			}
			if c.want == "" && err == nil {
				return
			}
			if err == nil || c.want == "" || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: found error %v, needed %q", name, err, c.want)
			}
		})
	}
}

// TestDecodeGrowth: nor does one decode tokens to a text that is much longer.
func TestDecodeGrowth(t *testing.T) {
	cost(t, "decoding", func() {
		codec, _, err := read([]byte(
			tiny(map[string]string{"decoder": sequence("decoders", 10,
				`{"type":"Replace","pattern":{"String":"a"},"content":"aaaaaaaaaa"}`)})))
		must.Succeed(t, err)
		tok := &Tokenizer{codec: codec, path: "tokenizer.json"}
		id, _ := tok.id("a")
		if text, err := tok.Decode([]int64{int64(id)}, DecodeOptions{}); err == nil ||
			!strings.Contains(err.Error(), "its Replace makes") {
			t.Errorf("found %d bytes, error %v", len(text), err)
		}
	})
}

// TestExpressionTime: a text has one time for all that regular expressions do with it, which its length gives.
func TestExpressionTime(t *testing.T) {
	const slow = `{"type":"Split","pattern":{"Regex":"(?:a|a|aa)+$"},"behavior":"Isolated"}`
	codec, _, err := read([]byte(tiny(map[string]string{"pre_tokenizer": sequence("pretokenizers", 2, slow)})))
	must.Succeed(t, err)
	tok := &Tokenizer{codec: codec, path: "tokenizer.json"}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	start := threads.ProcessorTime()
	_, err = tok.Encode(t.Context(), strings.Repeat(strings.Repeat("a", 40)+"b", 20), EncodeOptions{})
	if err == nil || !strings.Contains(err.Error(),
		`its regular expression "(?:a|a|aa)+$" takes more than 1.041s of processor time on a text of 820 bytes`) ||
		len(err.Error()) > 400 {
		t.Errorf("found error %v, needed one that names the time", err)
	}
	if took := threads.ProcessorTime() - start; took > 15*time.Second { // a match took 20 s alone, and there are many
		t.Errorf("took %v", took)
	}
}

// TestExpressionOnBusyMachine: time in which the thread does not run is not the expression's.
func TestExpressionOnBusyMachine(t *testing.T) {
	processorTime = func() time.Duration { return 0 } // the machine is so busy that it has not run yet
	defer func() { processorTime = threads.ProcessorTime }()
	p := must.Value(newPattern("(?:a|b|ab)+?c"))(t)
	text := strings.Repeat("ab", 12) + " " + strings.Repeat("abc", 1000)
	b := newBudget(len(text))
	b.look = time.Now().Add(-time.Hour) // all of its time has passed
	matches := 0
	if err := p.each(text, b, func(start, end int) error { matches++; return nil }); err != nil || matches != 1000 {
		t.Errorf("found %d matches, error %v, needed 1000", matches, err)
	}
	// With processor time it ends: a clock that goes on by two seconds at each look.
	clock := time.Duration(0)
	processorTime = func() time.Duration { clock += 2 * time.Second; return clock }
	b = newBudget(len(text))
	b.look = time.Now().Add(-time.Hour)
	err := p.each(text, b, func(int, int) error { return nil })
	must.Fail(t, err, "of processor time on a text of")
}

// TestLimitsOfFile: what a tokenizer's file may bring.
func TestLimitsOfFile(t *testing.T) {
	deep := strings.Repeat(`{"type":"Sequence","normalizers":[`, 5000) + strings.Repeat("]}", 5000)
	ids := strings.TrimSuffix(strings.Repeat("1,", 1000), ",")
	for name, c := range map[string]struct {
		parts map[string]string
		want  string
	}{
		"depth":      {map[string]string{"normalizer": deep}, "more than 32 deep"},
		"components": {map[string]string{"normalizer": sequence("normalizers", 100_000, "{}")}, "found 100000 components"},
		"expressions": {map[string]string{"pre_tokenizer": `{"type":"Split","pattern":{"Regex":"` +
			strings.Repeat(`\\p{L}`, 10_000) + `"},"behavior":"Isolated"}`}, "bytes of regular expressions"},
		"around": {map[string]string{"post_processor": `{"type":"TemplateProcessing","single":[` +
			strings.Repeat(`{"SpecialToken":{"id":"x"}},`, 100) + `{"Sequence":{"id":"A"}}],"special_tokens":{"x":{"ids":[` +
			ids + `]}}}`}, "ids around a text"},
		"token": {map[string]string{"model": `{"type":"WordLevel","vocab":{"` + strings.Repeat("a", 5000) + `":0}}`},
			"which has 5000 bytes"},
		"added token": {map[string]string{"added_tokens": `[{"id":0,"content":"` + strings.Repeat("a", 5000) + `"}]`},
			"which has 5000 bytes"},
		"prefix": {map[string]string{"model": `{"type":"BPE","vocab":{"a":0},"merges":[],"continuing_subword_prefix":"###########"}`}, "prefix or suffix of 11 bytes"},
	} {
		cost(t, name, func() {
			if _, _, err := read([]byte(tiny(c.parts))); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: found error %.300v, needed %q", name, err, c.want)
			}
		})
	}
}

// TestLinear: texts that meet the same token or the same unknown everywhere take time as others do.
func TestLinear(t *testing.T) {
	const n = 1 << 20
	codec, _, err := read([]byte(
		tiny(map[string]string{"added_tokens": `[{"id":9,"content":" ","lstrip":true,"rstrip":true}]`})))
	must.Succeed(t, err)
	cost(t, "whitespace around a token", func() {
		if _, err := (&Tokenizer{codec: codec}).Encode(t.Context(), strings.Repeat(" ", n), EncodeOptions{}); err != nil {
			t.Error(err)
		}
	})
	marian := open(t, "marian")
	cost(t, "unknown characters", func() {
		if _, err := marian.Encode(t.Context(), strings.Repeat("\u4f60", n/3), EncodeOptions{}); err != nil {
			t.Error(err)
		}
	})
}

// charsmapOf is a precompiled charsmap, in base64, that makes one letter a text.
func charsmapOf(letter byte, to string) string {
	units := make([]uint32, 128)
	units[letter] = 1<<10 | 1<<8 | uint32(letter) // it has a value, which is beside it
	blob := binary.LittleEndian.AppendUint32(nil, uint32(4*len(units)))
	for _, u := range units {
		blob = binary.LittleEndian.AppendUint32(blob, u)
	}
	return base64.StdEncoding.EncodeToString(append(append(blob, to...), 0))
}

// looks is a context that ends when it was looked at so often.
type looks struct {
	context.Context
	left int
}

func (l *looks) Err() error {
	if l.left--; l.left < 0 {
		return context.Canceled
	}
	return nil
}

// TestContextEnds: a text of megabytes is left while it is made into tokens, whatever kind of tokenizer does it, and
// however it is cut into words.
func TestContextEnds(t *testing.T) {
	for _, name := range []string{"gpt2", "bert", "llama2", "t5", "marian", "bytes_unigram"} {
		tok := open(t, name)
		for what, unit := range map[string]string{"words": "the quick brown fox, 12 times! ", "one word": "abcdefghij"} {
			s := strings.Repeat(unit, 1<<20/len(unit))
			ctx := &looks{t.Context(), 1}
			if _, err := tok.Encode(ctx, s, EncodeOptions{}); err != context.Canceled {
				t.Errorf("%s, %s: found %v, needed the context's error", name, what, err)
			}
			if ctx.left < -3 {
				t.Errorf("%s, %s: it was looked at %d times after it had ended", name, what, -ctx.left)
			}
		}
	}
}

// TestMemoryOfLongTexts: one line of megabytes takes at most 60 times its size, freed memory included, whatever it is
// cut into. A list of its words alone would take that.
func TestMemoryOfLongTexts(t *testing.T) {
	const size = 1 << 20
	for _, name := range []string{"gpt2", "bert", "llama2", "t5", "marian", "bytes_unigram"} {
		tok := open(t, name)
		for what, unit := range map[string]string{"words": "the quick brown fox, 12 times! ", "letters": "a b ",
			"one word": "abcdefghij", "Han": "\u4f60\u597d"} {
			s := strings.Repeat(unit, size/len(unit))
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			must.Value(tok.Encode(t.Context(), s, EncodeOptions{}))(t, name, what)
			runtime.ReadMemStats(&after)
			if times := (after.TotalAlloc - before.TotalAlloc) / uint64(len(s)); times > allocatedTimes {
				t.Errorf("%s, %s: %d bytes for each byte of the text", name, what, times)
			}
		}
	}
}
