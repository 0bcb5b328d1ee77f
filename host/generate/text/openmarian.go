package text

import (
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/opgraft/graft/host/base/limit"
	"github.com/opgraft/graft/host/base/storage"
)

var errPair = errors.New("found two texts, needed one: Marian's models read no pairs")

// openMarian reads the files of transformers' MarianTokenizer. Its punctuation
// normaliser is not asked, as transformers does not ask it when it tokenizes.
func openMarian(dir string) (*Tokenizer, error) {
	c, err := readConfig(dir)
	if err != nil {
		return nil, err
	}
	source, err := openPieces(dir, "source.spm")
	if err != nil {
		return nil, err
	}
	target, err := openPieces(dir, "target.spm")
	if err != nil {
		return nil, err
	}
	ids, err := openVocabulary(dir, "vocab.json")
	if err != nil {
		return nil, err
	}
	targetIDs := ids
	if c.separate {
		if targetIDs, err = openVocabulary(dir, "target_vocab.json"); err != nil {
			return nil, err
		}
	}
	special := map[string]bool{}
	added := c.added
	for role, standard := range map[string]string{"eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"} {
		if c.roles[role] == "" {
			c.roles[role] = standard
		}
	}
	for _, token := range c.roles {
		special[token] = true
	}
	for _, token := range c.extra {
		special[token] = true
	}
	for token := range special {
		if id, ok := ids[token]; ok {
			added = append(added, addedToken{ID: id, Content: token, Special: true})
		}
	}
	path := filepath.Join(dir, "vocab.json")
	unknown, ok := ids[c.roles["unk_token"]]
	if !ok {
		return nil, fmt.Errorf("%s: found no token %q, needed it for unknown pieces", path, c.roles["unk_token"])
	}
	end, ok := ids[c.roles["eos_token"]]
	if !ok {
		return nil, fmt.Errorf("%s: found no token %q, needed it for the end of a text", path, c.roles["eos_token"])
	}
	side := func(pieces *sentencePiece, ids map[string]int32) *Tokenizer {
		m := &marian{pieces: pieces, spoken: target, ids: ids, names: map[int32]string{}, unknown: unknown,
			around: templates{single: template{{text: true}, {ids: []int32{end}}}, bad: errPair}, addedID: map[string]int32{},
			special: special}
		for token, id := range targetIDs {
			m.names[id] = token
		}
		var tokens []addedToken
		var forms []string
		for _, t := range added {
			if _, twice := m.addedID[t.Content]; twice || t.Content == "" {
				continue
			}
			m.addedID[t.Content], m.names[t.ID] = t.ID, t.Content
			tokens, forms = append(tokens, t), append(forms, t.Content)
		}
		m.added = newAddedSet(tokens, forms)
		return &Tokenizer{codec: m, path: dir, special: special, clean: c.clean}
	}
	t := side(source, ids)
	t.target = side(target, targetIDs)
	return t, nil
}

func openPieces(dir, name string) (*sentencePiece, error) {
	path := filepath.Join(dir, name)
	data, err := storage.ReadRegular(path, limit.Vocabulary)
	if err != nil {
		return nil, fmt.Errorf("tokenizer of Marian: %w; needed source.spm, target.spm and vocab.json", err)
	}
	m, err := readSentencePiece(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return m, nil
}

func openVocabulary(dir, name string) (map[string]int32, error) {
	path := filepath.Join(dir, name)
	data, err := storage.ReadRegular(path, limit.Vocabulary)
	if err != nil {
		return nil, fmt.Errorf("tokenizer of Marian: %w; needed source.spm, target.spm and vocab.json", err)
	}
	var ids map[string]int32
	if err := json.Unmarshal(data, &ids); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	for token, id := range ids {
		if id < 0 {
			return nil, fmt.Errorf("%s: found id %d for token %q, needed none below 0", path, id, token)
		}
	}
	return ids, nil
}
