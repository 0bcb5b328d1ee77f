package text

import (
	"compress/gzip"
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/opgraft/graft/internal/must"
)

// unpack reads a compressed file of testdata.
func unpack(t testing.TB, path string) []byte {
	t.Helper()
	f := must.Value(os.Open(path))(t)
	defer f.Close()
	z := must.Value(gzip.NewReader(f))(t)
	data := must.Value(io.ReadAll(z))(t)
	return data
}

// open opens one of the tokenizers of testdata.
func open(t testing.TB, name string) *Tokenizer {
	t.Helper()
	dir := t.TempDir()
	packed, err := filepath.Glob(filepath.Join("testdata", name, "*.gz"))
	if err != nil || len(packed) == 0 {
		t.Fatalf("testdata/%s: found no files (%v); write them with models/text/train.py", name, err)
	}
	for _, path := range packed {
		base := strings.TrimSuffix(filepath.Base(path), ".gz")
		if base == "expected" {
			continue
		}
		must.Succeed(t, os.WriteFile(filepath.Join(dir, base), unpack(t, path), 0o644))
	}
	tok := must.Value(Open(dir))(t)
	return tok
}

func testLines(t testing.TB) []string {
	t.Helper()
	var lines []string
	must.Succeed(t, json.Unmarshal(unpack(t, "testdata/lines.json.gz"), &lines))
	if len(lines) < 10_000 {
		t.Fatalf("testdata/lines.json.gz: found %d lines, needed 10000", len(lines))
	}
	return lines
}

// answer is what models/text/expect.py compares of a line.
type answer struct {
	IDs     []int64 `json:"ids"`
	Bare    []int64 `json:"bare"`
	Target  []int64 `json:"target"`
	Decoded string  `json:"decoded"`
	Skipped string  `json:"skipped"`
	Cleaned string  `json:"cleaned"`
}

func answerOf(ctx context.Context, t *Tokenizer, line string) (a answer, err error) {
	if a.IDs, err = t.Encode(ctx, line, EncodeOptions{}); err != nil {
		return a, err
	}
	if a.Bare, err = t.Encode(ctx, line, EncodeOptions{OmitSpecialTokens: true}); err != nil {
		return a, err
	}
	if a.Target, err = t.Target().Encode(ctx, line, EncodeOptions{}); err != nil {
		return a, err
	}
	if a.Decoded, err = t.Decode(a.IDs, DecodeOptions{Spaces: SpacesKept}); err != nil {
		return a, err
	}
	if a.Skipped, err = t.Decode(a.IDs, DecodeOptions{SkipSpecialTokens: true, Spaces: SpacesKept}); err != nil {
		return a, err
	}
	a.Cleaned, err = t.Decode(a.IDs, DecodeOptions{SkipSpecialTokens: true, Spaces: SpacesCleaned})
	return a, err
}

// check is expect.py's: the low three bytes of a CRC-32 over an answer.
func (a answer) check() uint32 {
	var data []byte
	for _, ids := range [][]int64{a.IDs, a.Bare, a.Target} {
		for _, id := range ids {
			data = binary.LittleEndian.AppendUint32(data, uint32(id))
		}
		data = binary.LittleEndian.AppendUint32(data, 1<<32-1)
	}
	for _, s := range []string{a.Decoded, a.Skipped, a.Cleaned} {
		data = append(append(data, s...), 0xff)
	}
	return crc32.ChecksumIEEE(data) & 0xffffff
}

func kindNames(t testing.TB) []string {
	t.Helper()
	folders, err := filepath.Glob("testdata/*/expected.gz")
	if err != nil || len(folders) < 17 {
		t.Fatalf("testdata: found %d kinds (%v), needed 17; write them with models/text/train.py", len(folders), err)
	}
	for i, f := range folders {
		folders[i] = filepath.Base(filepath.Dir(f))
	}
	return folders
}

// TestEqualToHuggingFace compares 10,000 lines for a tokenizer of each kind
// with what Hugging Face's packages made of them.
func TestEqualToHuggingFace(t *testing.T) {
	lines := testLines(t)
	for _, name := range kindNames(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tok := open(t, name)
			var want struct {
				Versions string
				Checks   string
				Full     map[string]answer
			}
			must.Succeed(t, json.Unmarshal(unpack(t, filepath.Join("testdata", name, "expected.gz")), &want))
			checks, err := base64.StdEncoding.DecodeString(want.Checks)
			if err != nil || len(checks) != 3*len(lines) {
				t.Fatalf("expected.gz: found %d bytes of checks (%v), needed 3 a line", len(checks), err)
			}
			for key, answer := range want.Full {
				i := must.Value(strconv.Atoi(key))(t)
				got, err := answerOf(t.Context(), tok, lines[i])
				if diff := cmp.Diff(answer, got); err != nil || diff != "" {
					t.Errorf("line %d %+q against %s: %v (-want +got):\n%s", i, lines[i], want.Versions, err, diff)
				}
			}
			bad := 0
			for i := 0; i < len(lines); i += compareEvery {
				line := lines[i]
				got := must.Value(answerOf(t.Context(), tok, line))(t, "line", i)
				if c := uint32(checks[3*i]) | uint32(checks[3*i+1])<<8 | uint32(checks[3*i+2])<<16; c != got.check() {
					if bad++; bad <= 5 {
						t.Errorf("line %d %+q: differs from %s; got %+v", i, line, want.Versions, got)
					}
				}
			}
			if bad > 0 {
				t.Errorf("%d of %d lines differ", bad, len(lines))
			}
		})
	}
}

// TestDecodeUTF8: ids in any order decode to UTF-8.
func TestDecodeUTF8(t *testing.T) {
	lines := testLines(t)
	for _, name := range kindNames(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tok := open(t, name)
			for i := 0; i < len(lines); i += 7 * compareEvery {
				ids := must.Value(tok.Encode(t.Context(), lines[i], EncodeOptions{}))(t)
				// Half of the time ids in an order that no text gives.
				if i%2 == 1 {
					slices.Reverse(ids)
				}
				for _, o := range []DecodeOptions{{}, {SkipSpecialTokens: true, Spaces: SpacesCleaned}} {
					if err := decoded(tok, ids, o); err != nil {
						t.Fatalf("line %d %+q: %v", i, lines[i], err)
					}
				}
			}
		})
	}
}

// decoded is an error where ids do not decode, or not to UTF-8, or to another text where they come one by one.
func decoded(tok *Tokenizer, ids []int64, o DecodeOptions) error {
	got, err := tok.Decode(ids, o)
	if err != nil {
		return err
	}
	if i := invalidUTF8(got); i >= 0 {
		return fmt.Errorf("%q is not UTF-8 at %d", got, i)
	}
	d, pieces := tok.Decoder(o), ""
	for _, id := range ids {
		piece, err := d.Add(id)
		if err != nil || invalidUTF8(piece) >= 0 || !strings.HasPrefix(got, pieces+piece) {
			return fmt.Errorf("%q goes on with %q (%w), want %q", pieces, piece, err, got)
		}
		pieces += piece
	}
	if rest, err := d.Finish(); err != nil || pieces+rest != got {
		return fmt.Errorf("%q ends with %q (%w), want %q", pieces, rest, err, got)
	}
	return nil
}

// TestConcurrent runs one tokenizer from many goroutines; the race detector watches.
func TestConcurrent(t *testing.T) {
	lines := testLines(t)[:600]
	for _, name := range []string{"bart", "t5", "marian", "bert"} {
		tok := open(t, name)
		want := make([]answer, len(lines))
		for i, line := range lines {
			var err error
			if want[i], err = answerOf(t.Context(), tok, line); err != nil {
				t.Fatal(err)
			}
		}
		fresh := open(t, name)
		var wait sync.WaitGroup
		for g := range 4 {
			wait.Go(func() {
				for i := range lines {
					k := (i*7 + g*131) % len(lines)
					got, err := answerOf(t.Context(), fresh, lines[k])
					if diff := cmp.Diff(want[k], got); err != nil || diff != "" {
						t.Errorf("%s, line %d: %v\n%s", name, k, err, diff)
						return
					}
				}
			})
		}
		wait.Wait()
	}
}
