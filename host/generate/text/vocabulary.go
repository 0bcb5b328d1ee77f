package text

import (
	"context"
	"encoding/json"
	"fmt"
	"math"

	"github.com/opgraft/graft/host/base/limit"
	"github.com/opgraft/graft/host/base/storage"
)

// Token is the token of an id, as it stands in the vocabulary; ok is false where there is none.
func (t *Tokenizer) Token(id int64) (token string, ok bool) {
	if id < 0 || id > math.MaxInt32 {
		return "", false
	}
	return t.token(int32(id))
}

// Role is the token that the folder's configuration names for a role, such as mask_token; "" where it names none.
func (t *Tokenizer) Role(name string) string { return t.roles[name] }

// Stored is the greatest number of ids that tokenizer.json itself says; 0 for no limit.
func (t *Tokenizer) Stored() int { return t.longest }

// First is the first token of a text.
func (t *Tokenizer) First(s string) (id int64, ok bool) {
	ids, err := t.Encode(context.Background(), s, EncodeOptions{OmitSpecialTokens: true})
	if err != nil || len(ids) == 0 {
		return 0, false
	}
	return ids[0], true
}

// CutsSecond is whether tokenizer.json cuts the second of two texts alone, so that a text by itself is not cut but
// refused.
func (t *Tokenizer) CutsSecond() bool { return t.second }

// Unknown is the id that tokenizer.json's model gives what it does not know; ok is false where it gives none. The file
// is read again: few ask.
func (t *Tokenizer) Unknown() (id int64, ok bool, err error) {
	data, err := storage.ReadRegular(t.path, limit.Vocabulary)
	if err != nil {
		return 0, false, fmt.Errorf("tokenizer: %w", err)
	}
	var f struct {
		Model struct {
			Token *string `json:"unk_token"`
			ID    *int64  `json:"unk_id"`
		} `json:"model"`
	}
	if err := json.Unmarshal(data, &f); err != nil {
		return 0, false, fmt.Errorf("%s: %w", t.path, err)
	}
	switch {
	case f.Model.Token != nil:
		id, ok = t.ID(*f.Model.Token)
	case f.Model.ID != nil:
		id, ok = *f.Model.ID, true
	}
	return id, ok, nil
}
