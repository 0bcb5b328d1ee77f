package text

import "slices"

// trie maps byte strings to values and finds all keys that a text starts with.
// Children of a node lie side by side, ordered by their byte.
type trie struct {
	label []byte
	first []int32 // first child of a node
	count []int16 // children of a node
	value []int32 // value of the key that ends at a node, or -1
	root  [256]int32
}

// newTrie builds a trie. Of equal keys the last one's value stays. Empty keys are left out.
func newTrie(keys []string, values []int32) *trie {
	order := make([]int32, 0, len(keys))
	for i, k := range keys {
		if k != "" {
			order = append(order, int32(i))
		}
	}
	slices.SortStableFunc(order, func(a, b int32) int {
		switch {
		case keys[a] < keys[b]:
			return -1
		case keys[a] > keys[b]:
			return 1
		}
		return 0
	})
	t := &trie{label: []byte{0}, first: []int32{0}, count: []int16{0}, value: []int32{-1}}
	type span struct{ node, low, high, depth int32 }
	queue := []span{{0, 0, int32(len(order)), 0}}
	for len(queue) > 0 {
		s := queue[0]
		queue = queue[1:]
		low := s.low
		for low < s.high && len(keys[order[low]]) == int(s.depth) {
			t.value[s.node] = values[order[low]]
			low++
		}
		t.first[s.node] = int32(len(t.label))
		for low < s.high {
			b := keys[order[low]][s.depth]
			high := low + 1
			for high < s.high && keys[order[high]][s.depth] == b {
				high++
			}
			queue = append(queue, span{int32(len(t.label)), low, high, s.depth + 1})
			t.label = append(t.label, b)
			t.first = append(t.first, 0)
			t.count = append(t.count, 0)
			t.value = append(t.value, -1)
			t.count[s.node]++
			low = high
		}
	}
	for i := range t.count[0] {
		node := t.first[0] + int32(i)
		t.root[t.label[node]] = node
	}
	return t
}

// child returns the child of node by byte b, or 0.
func (t *trie) child(node int32, b byte) int32 {
	if node == 0 {
		return t.root[b]
	}
	low := t.first[node]
	high := low + int32(t.count[node])
	for high-low > 8 {
		middle := (low + high) / 2
		if t.label[middle] <= b {
			low = middle
		} else {
			high = middle
		}
	}
	for ; low < high; low++ {
		if t.label[low] == b {
			return low
		}
	}
	return 0
}

// longest returns the value and length of the longest key that s starts with, or -1 and 0.
func (t *trie) longest(s string) (value int32, length int) {
	value = -1
	node := int32(0)
	for i := 0; i < len(s); i++ {
		if node = t.child(node, s[i]); node == 0 {
			break
		}
		if t.value[node] >= 0 {
			value, length = t.value[node], i+1
		}
	}
	return value, length
}
