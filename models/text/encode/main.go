// Command encode runs host/generate/text over lines, for check.py to compare.
//
//	go run ./models/text/encode FOLDER < lines.json > results.jsonl
//
// lines.json is one array of strings. For every line it writes a line of JSON:
// "ids" (with special tokens), "bare" (without), "target" (Marian: as text of
// the target language), and the text of ids without and with special tokens
// skipped ("decoded", "skipped"). The time that encoding took, of the second
// of two rounds and so with a warm word cache, goes to standard error, and
// that of the first.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/opgraft/graft/host/generate/text"
)

type result struct {
	IDs     []int64 `json:"ids"`
	Bare    []int64 `json:"bare"`
	Target  []int64 `json:"target"`
	Decoded string  `json:"decoded"`
	Skipped string  `json:"skipped"`
}

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: encode FOLDER < lines.json > results.jsonl")
		os.Exit(2)
	}
	if err := run(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "encode:", err)
		os.Exit(1)
	}
}

func run(folder string) error {
	t, err := text.Open(folder)
	if err != nil {
		return err
	}
	var lines []string
	if err := json.NewDecoder(os.Stdin).Decode(&lines); err != nil {
		return err
	}
	bytes := 0
	for _, line := range lines {
		bytes += len(line)
	}
	for round := range 2 {
		start := time.Now()
		for _, line := range lines {
			if _, err := t.Encode(context.Background(), line, text.EncodeOptions{}); err != nil {
				return err
			}
		}
		took := time.Since(start)
		fmt.Fprintf(os.Stderr, "encode: round %d: %d lines, %d bytes, %v, %.1f MB/s on one core\n", round+1, len(lines),
			bytes,
			took.Round(time.Millisecond), float64(bytes)/took.Seconds()/1e6)
	}
	out := bufio.NewWriter(os.Stdout)
	for _, line := range lines {
		r, err := all(t, line)
		if err != nil {
			return err
		}
		data, err := json.Marshal(r)
		if err != nil {
			return err
		}
		out.Write(append(data, '\n'))
	}
	return out.Flush()
}

func all(t *text.Tokenizer, line string) (r result, err error) {
	if r.IDs, err = t.Encode(context.Background(), line, text.EncodeOptions{}); err != nil {
		return r, err
	}
	if r.Bare, err = t.Encode(context.Background(), line, text.EncodeOptions{OmitSpecialTokens: true}); err != nil {
		return r, err
	}
	if r.Target, err = t.Target().Encode(context.Background(), line, text.EncodeOptions{}); err != nil {
		return r, err
	}
	if r.Decoded, err = t.Decode(r.IDs, text.DecodeOptions{}); err != nil {
		return r, err
	}
	r.Skipped, err = t.Decode(r.IDs, text.DecodeOptions{SkipSpecialTokens: true})
	return r, err
}
