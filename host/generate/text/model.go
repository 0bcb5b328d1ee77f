package text

import (
	"hash/maphash"
	"sync"
)

// A model turns one word into ids, and says which bytes of the word each stands for where places is not nil. Its
// methods may run at the same time.
type model interface {
	tokenize(word string, out []int32, places *[]place, b *budget) ([]int32, error)
	id(token string) (int32, bool)
	token(id int32) (string, bool)
	size() int
}

// put notes a token's place.
func put(places *[]place, start, end int) {
	if places != nil {
		*places = append(*places, place{start, end})
	}
}

// vocabulary is a two-way table of tokens.
type vocabulary struct {
	ids    map[string]int32
	tokens map[int32]string
}

func newVocabulary(ids map[string]int32) vocabulary {
	v := vocabulary{ids, make(map[int32]string, len(ids))}
	for token, id := range ids {
		v.tokens[id] = token
	}
	return v
}

func (v vocabulary) id(token string) (int32, bool) {
	id, ok := v.ids[token]
	return id, ok
}

func (v vocabulary) token(id int32) (string, bool) {
	token, ok := v.tokens[id]
	return token, ok
}

func (v vocabulary) size() int { return len(v.ids) }

// wordLevel knows whole words only.
type wordLevel struct {
	vocabulary
	unknown string
}

func (m wordLevel) tokenize(word string, out []int32, places *[]place, b *budget) ([]int32, error) {
	put(places, 0, len(word))
	if id, ok := m.ids[word]; ok {
		return append(out, id), nil
	}
	id, ok := m.ids[m.unknown]
	if !ok {
		return nil, unknownMissing(m.unknown, word)
	}
	return append(out, id), nil
}

// wordCache remembers the ids of short words. It is cut into shards so that
// goroutines seldom wait for each other; a full shard forgets one word at random.
type wordCache struct {
	seed   maphash.Seed
	shards [64]struct {
		sync.RWMutex
		ids map[string][]int32
	}
}

const (
	cachedWord  = 256 // bytes of the longest word that is cached
	cachedWords = 512 // words a shard
)

func newWordCache() *wordCache {
	c := &wordCache{seed: maphash.MakeSeed()}
	for i := range c.shards {
		c.shards[i].ids = map[string][]int32{}
	}
	return c
}

// tokenize is m.tokenize(prepare(word)), remembered.
func (c *wordCache) tokenize(m model, word string, prepare func(string) string, out []int32,
	b *budget) ([]int32, error) {
	if len(word) > cachedWord {
		return m.tokenize(prepare(word), out, nil, b)
	}
	shard := &c.shards[maphash.String(c.seed, word)%uint64(len(c.shards))]
	shard.RLock()
	ids, ok := shard.ids[word]
	shard.RUnlock()
	if ok {
		return append(out, ids...), nil
	}
	start := len(out)
	out, err := m.tokenize(prepare(word), out, nil, b)
	if err != nil {
		return nil, err
	}
	// The word is copied: it must not keep the whole text alive.
	key, value := string([]byte(word)), append([]int32(nil), out[start:]...)
	shard.Lock()
	if len(shard.ids) >= cachedWords {
		for old := range shard.ids {
			delete(shard.ids, old)
			break
		}
	}
	shard.ids[key] = value
	shard.Unlock()
	return out, nil
}
