package history

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/opgraft/graft/host/generate/modeldir"
	"github.com/opgraft/graft/host/generate/score"
	"github.com/opgraft/graft/host/measure/comparison/divergence"
	"github.com/opgraft/graft/host/measure/comparison/generations"
	"github.com/opgraft/graft/host/onnx/model"
	"github.com/opgraft/graft/host/rewrite"
)

// Memory is a size of a side, in bytes, of one generation in a process of its own.
type Memory struct {
	Side string `json:"side"`
	What string `json:"what"` // the key that a result has it under
	Old  int64  `json:"old_bytes"`
	New  int64  `json:"new_bytes"`
	// Delta is new/old - 1: -0.1 is a tenth less.
	Delta float64 `json:"delta"`
}

// sizes are those of a side that both results have.
func sizes(from, to *generations.Side) (list []Memory) {
	for _, x := range []struct {
		what string
		of   func(*generations.Side) int64
	}{
		{"cache_bytes", func(s *generations.Side) int64 { return s.CacheBytes }},
		{"cache_bytes_per_request", func(s *generations.Side) int64 { return s.RequestBytes }},
		{"opened_rss_bytes", func(s *generations.Side) int64 { return s.OpenedRSSBytes }},
		{"generating_peak_rss_bytes", func(s *generations.Side) int64 { return s.GeneratingPeakRSSBytes }},
		{"peak_rss_bytes", func(s *generations.Side) int64 { return s.PeakRSSBytes }},
	} {
		if old, now := x.of(from), x.of(to); old > 0 && now > 0 {
			list = append(list, Memory{from.Name, x.what, old, now, float64(now)/float64(old) - 1})
		}
	}
	return list
}

// memory compares the sizes of sides that are in both.
func memory(from, to *generations.Compared) []Memory {
	list := []Memory{}
	if from.A.Name == to.A.Name {
		list = append(list, sizes(&from.A, &to.A)...)
	}
	for i := range from.Sides {
		if b := sideOf(to, from.Sides[i].Name); b != nil {
			list = append(list, sizes(&from.Sides[i].Side, &b.Side)...)
		}
	}
	return list
}

func sideOf(c *generations.Compared, name string) *generations.Against {
	i := slices.IndexFunc(c.Sides, func(s generations.Against) bool { return s.Name == name })
	if i < 0 {
		return nil
	}
	return &c.Sides[i]
}

// task are the words for what was generated, and how it was searched, by what they say.
func task(c *generations.Compared) map[string]string {
	words := map[string]string{"batch": fmt.Sprint(c.Batch), "input tokens": fmt.Sprint(c.InputTokens),
		"inputs": short(c.InputsSHA256)}
	if c.InputFeatures != nil {
		words["input features"] = fmt.Sprint(c.InputFeatures)
	}
	var search map[string]json.RawMessage
	if json.Unmarshal(c.Search, &search) == nil {
		for name, value := range search {
			if data, err := canonical(value); err == nil {
				words["option "+name] = string(data)
			}
		}
	}
	return words
}

// sameTask says whether two results are of the same inputs and search.
func sameTask(from, to *generations.Compared) bool { return maps.Equal(task(from), task(to)) }

// generated notes what is not as it was of whole generations: the task, the tokens, and what runs the layers.
func generated(a, b *generations.Compared, note func(what, old, now string)) {
	note("rounds", fmt.Sprint(a.Rounds), fmt.Sprint(b.Rounds))
	before, now := task(a), task(b)
	for _, what := range slices.Sorted(maps.Keys(merged(before, now))) {
		note(what, absent(before[what], "none"), absent(now[what], "none"))
	}
	sameTexts := a.Forced != nil && b.Forced != nil && *a.Forced == *b.Forced
	if a.A.Name == b.A.Name {
		layers(&a.A, &b.A, note)
		predicted(&a.A, &b.A, sameTexts, note)
	}
	for i := range a.Sides {
		x := &a.Sides[i]
		y := sideOf(b, x.Name)
		if y == nil {
			continue
		}
		note("sequences of "+x.Name+" that are a's", equal(x), equal(y))
		note("new tokens of "+x.Name, fmt.Sprint(x.NewTokens), fmt.Sprint(y.NewTokens))
		layers(&x.Side, &y.Side, note)
		predicted(&x.Side, &y.Side, sameTexts, note)
		if p, q := x.Divergence, y.Divergence; sameTexts && p != nil && q != nil {
			note("mean KL divergence of "+x.Name+" from a", divergent(p), divergent(q))
			note("greedy tokens of "+x.Name+" that are a's", fmt.Sprintf("%d of %d", p.EqualGreedy, p.Tokens),
				fmt.Sprintf("%d of %d", q.EqualGreedy, q.Tokens))
		}
	}
}

// predicted notes what a side makes of texts that are the same in both results.
func predicted(x, y *generations.Side, sameTexts bool, note func(what, old, now string)) {
	if p, q := x.Likelihood, y.Likelihood; sameTexts && p != nil && q != nil {
		note("perplexity of "+x.Name, fmt.Sprintf("%.5g", p.Perplexity), fmt.Sprintf("%.5g", q.Perplexity))
	}
	if p, q := x.Scores, y.Scores; p != nil && q != nil {
		note("scores of "+x.Name, scores(p), scores(q))
	}
}

// divergent is a mean divergence in words: what rounding makes of an exact side is one of them.
func divergent(d *divergence.Divergence) string {
	if d.KLMean < 1e-9 {
		return "below 1e-9"
	}
	return fmt.Sprintf("%.2e", d.KLMean)
}

func scores(s *score.Scores) string {
	return fmt.Sprintf("ROUGE-L %.4f, BLEU %.2f, WER %.4f", s.ROUGEL, s.BLEU, s.WER)
}

func equal(b *generations.Against) string { return fmt.Sprintf("%d of %d", b.Equal, b.Sequences) }

// layers notes those that a side runs otherwise.
func layers(x, y *generations.Side, note func(what, old, now string)) {
	words := func(list []rewrite.LayerStrategy) (blocks []block) {
		for _, l := range list {
			blocks = append(blocks, block{l.Node, string(l.Strategy) + " of " + l.Plugin})
		}
		return blocks
	}
	otherwise(x.Name, words(x.Attention), words(y.Attention), note)
}

// folderSHA256 is a hash of a model folder's content as far as generations depend on it: of lines of "HASH  NAME\n",
// one for each of its graphs, with their data as model.Files has it, and for each file of JSON beside them, in the
// order of the names.
func folderSHA256(folder string) (string, error) {
	files, err := modeldir.Find(folder)
	if err != nil {
		return "", err
	}
	hashes := map[string]string{}
	for _, path := range []string{files.Encoder, files.First, files.Decoder} {
		name, err := filepath.Rel(folder, path)
		if path == "" || err == nil && hashes[name] != "" {
			continue
		}
		if err != nil {
			return "", err
		}
		if hashes[name], err = fileSHA256(path); err != nil {
			return "", err
		}
	}
	for _, name := range []string{"config.json", "genai_config.json", "generation_config.json", "tokenizer.json",
		"tokenizer_config.json", "preprocessor_config.json"} {
		data, err := os.ReadFile(filepath.Join(folder, name))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return "", err
		}
		sum := sha256.Sum256(data)
		hashes[name] = hex.EncodeToString(sum[:])
	}
	var lines strings.Builder
	for _, name := range slices.Sorted(maps.Keys(hashes)) {
		fmt.Fprintf(&lines, "%s  %s\n", hashes[name], filepath.ToSlash(name))
	}
	return id([]byte(lines.String())), nil
}

// fileSHA256 is the hash of a model's file, as model.Files has it.
func fileSHA256(path string) (string, error) {
	m, err := model.Open(path)
	if err != nil {
		return "", err
	}
	defer m.Close()
	files, err := m.Files()
	if err != nil {
		return "", err
	}
	return files.SHA256()
}

// SHA256 is the hash of a model or a model folder at path, as results have it.
func SHA256(path string) (string, error) {
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		return folderSHA256(path)
	}
	return fileSHA256(path)
}
