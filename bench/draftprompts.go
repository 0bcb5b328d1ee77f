package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/opgraft/graft/host/base/diagnostic"
)

// draftPrompts are prompts over passages of the texts in a folder, the same each time: some whose answers copy, or
// passages to go on with.
func draftPrompts(folder string, copies bool, n int) ([]string, error) {
	var list [][]string
	for _, name := range []string{"held-out.txt", "calibration.txt"} {
		path := filepath.Join(folder, name)
		data, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		for line := range strings.Lines(string(data)) {
			list = append(list, runsOf(line)...)
		}
	}
	if len(list) < n {
		return nil, &diagnostic.Error{Path: folder, Found: fmt.Sprintf("%d passages", len(list)),
			Needed: fmt.Sprintf("%d, one for each output", n), Fix: "lower -outputs"}
	}
	r := rand.New(rand.NewPCG(17, 0x64726166))
	r.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	prompts := make([]string, n)
	for i := range prompts {
		prompts[i] = strings.Join(list[i], " ")
		if copies {
			prompts[i] = copying(r, i, list[i])
		}
	}
	return prompts, nil
}

// sentence is a sentence of English prose, roughly.
var sentence = regexp.MustCompile(`[A-Z][^.?!]{40,240}[.?!]`)

// runsOf are runs of three sentences.
func runsOf(text string) (list [][]string) {
	found := sentence.FindAllString(text, -1)
	for ; len(found) >= 3; found = found[3:] {
		list = append(list, found[:3:3])
	}
	return list
}

// copying is one of four tasks over a passage: to edit, to clean up, to extract, to repeat.
func copying(r *rand.Rand, i int, passage []string) string {
	whole := strings.Join(passage, " ")
	var task string
	switch i % 4 {
	case 0:
		task = "Correct the spelling mistakes in this text, and change nothing else:\n\n" + misspelt(r, whole)
	case 1:
		task = "Write this text again without its line breaks:\n\n" + broken(whole)
	case 2:
		task = "Quote the first two sentences of this text word for word:\n\n" + whole
	default:
		task = "Repeat this text word for word:\n\n" + whole
	}
	return "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging " +
		"Face<|im_end|>\n<|im_start|>user\n" + task + "<|im_end|>\n<|im_start|>assistant\n"
}

// misspelt is a text with two letters of some words changed about.
func misspelt(r *rand.Rand, text string) string {
	words := strings.Split(text, " ")
	for i, w := range words {
		if len(w) > 5 && r.IntN(12) == 0 {
			b := []byte(w)
			b[2], b[3] = b[3], b[2]
			words[i] = strings.ToValidUTF8(string(b), "")
		}
	}
	return strings.Join(words, " ")
}

// broken is a text in lines of about 40 letters.
func broken(text string) string {
	var b strings.Builder
	length := 0
	for word := range strings.FieldsSeq(text) {
		if length > 40 {
			b.WriteByte('\n')
			length = 0
		}
		if length > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(word)
		length += len(word) + 1
	}
	return b.String()
}
