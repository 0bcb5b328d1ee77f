package draft

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/opgraft/graft/host/generate/search"
)

// scan is Index.Next by reading everything: the latest place before the end where the last tokens stood, the longest
// run of sizes that has one.
func scan(text []int32, n int) (list []int32, size int) {
	for _, size := range sizes {
		if len(text) < size || slices.Contains(text[len(text)-size:], separator) {
			continue
		}
		last := text[len(text)-size:]
		for at := len(text) - 1; at >= size; at-- {
			if text[at] == separator || !slices.Equal(text[at-size:at], last) {
				continue
			}
			for whole := slices.Clone(text); len(list) < n && whole[at] != separator; at++ {
				list, whole = append(list, whole[at]), append(whole, whole[at])
			}
			return list, size
		}
	}
	return nil, 0
}

// TestIndexAgainstSearch: after every token the index finds what a search through the whole text finds.
func TestIndexAgainstSearch(t *testing.T) {
	r := rand.New(rand.NewPCG(17, 1))
	found := map[int]int{}
	for range 300 {
		vocab := 2 + r.IntN(30)
		var text []int32
		var texts [][]int32
		for i := range r.IntN(4) {
			part := make([]int32, r.IntN(40))
			for j := range part {
				part[j] = int32(r.IntN(vocab))
			}
			if i > 0 {
				text = append(text, separator)
			}
			texts, text = append(texts, part), append(text, part...)
		}
		x := NewIndex(texts...)
		for range 60 {
			n := r.IntN(12)
			list, size := x.Next([]int32{-7}, n)
			want, wantSize := scan(text, n)
			if list[0] != -7 || !slices.Equal(list[1:], want) || size != wantSize {
				t.Fatalf("after %v:\n%v of %d, want %v of %d", text, list, size, want, wantSize)
			}
			found[size]++
			token := int32(r.IntN(vocab))
			if len(want) > 0 && r.IntN(4) > 0 {
				token = want[0] // a text that copies
			}
			x.Add(token)
			text = append(text, token)
		}
	}
	t.Logf("places by the tokens that agreed: %v", found)
	for _, size := range append(sizes[:], 0) {
		if found[size] < 500 {
			t.Errorf("%d tokens agreed only %d times", size, found[size])
		}
	}
}

// TestIndexGrowsByThreeEntries bounds what a token takes.
func TestIndexGrowsByThreeEntries(t *testing.T) {
	x := NewIndex()
	for i := range int32(5000) {
		x.Add(i, i*7%13)
	}
	entries := 0
	for _, m := range x.last {
		entries += len(m)
	}
	if entries > 3*len(x.text) {
		t.Errorf("%d entries for %d tokens", entries, len(x.text))
	}
}

// follow lets a drafter of one row follow a text, and says how many tokens it drafted and how many of them were right.
func follow(d *Drafter, text []int32, price float64) (drafted, right int) {
	for at := 0; at < len(text); {
		list := d.Next(len(text)-at-1, price)[0]
		n := 0
		for n < len(list) && list[n] == text[at+n] {
			n++
		}
		drafted, right = drafted+len(list), right+n
		d.Chosen(n, []search.Move{{Token: text[at+n]}})
		at += n + 1
	}
	return drafted, right
}

func random(r *rand.Rand, n, vocab int) []int32 {
	list := make([]int32, n)
	for i := range list {
		list[i] = int32(r.IntN(vocab))
	}
	return list
}

// TestDrafterFollowsTheText: long drafts where a text copies, hardly any where it does not, and drafts again where it
// begins to.
func TestDrafterFollowsTheText(t *testing.T) {
	r := rand.New(rand.NewPCG(17, 2))
	prompt := random(r, 400, 1000)
	dull := random(r, 4000, 12) // pairs come again all the time, and what follows them is another token

	d := New(&Odds{}, false, 0, prompt)
	drafted, right := follow(d, prompt, 0.1)
	if steps := 400 - right; steps > 60 || drafted-right > 20 {
		t.Errorf("a copy of 400 tokens takes %d steps, with %d of %d drafted tokens wrong", steps, drafted-right, drafted)
	}

	d = New(&Odds{}, false, 0, prompt)
	follow(d, dull[:1000], 0.15)
	drafted, right = follow(d, dull[1000:], 0.15)
	t.Logf("%d of 3,000 tokens drafted where nothing is copied, %d right", drafted, right)
	if drafted > 300 {
		t.Errorf("%d of 3,000 tokens are drafted where nothing is copied, %d right", drafted, right)
	}
	drafted, right = follow(d, prompt, 0.15)
	if steps := 400 - right; steps > 120 {
		t.Errorf("a copy of 400 tokens after that takes %d steps, %d of %d drafted tokens wrong", steps, drafted-right,
			drafted)
	}
}

// certain are odds of guesses that were always right.
func certain() *Odds {
	o := &Odds{}
	for range 500 {
		for c := range classes {
			o.note(c, true)
		}
	}
	return o
}

// TestDrafterBounds: no draft is longer than what may come, than what was asked for, or than what pays.
func TestDrafterBounds(t *testing.T) {
	r := rand.New(rand.NewPCG(17, 3))
	prompt := random(r, 100, 1000)
	begun := func(call *Odds, longest int) *Drafter {
		d := New(call, false, longest, prompt)
		for _, token := range prompt[:10] {
			d.Chosen(0, []search.Move{{Token: token}})
		}
		return d
	}
	for _, c := range []struct {
		longest, most int
		price         float64
		want          int
	}{{0, 50, 0.01, Longest}, {0, 5, 0.01, 5}, {3, 50, 0.01, 3}, {0, 0, 0.01, 0}, {0, 50, 1, 0}, {40, 50, 0, 40}} {
		if got := begun(certain(), c.longest).Next(c.most, c.price)[0]; len(got) != c.want ||
			!slices.Equal(got, prompt[10:10+c.want]) {
			t.Errorf("%+v: %v", c, got)
		}
	}
	// The price of rows shortens a draft.
	before := Longest
	for _, price := range []float64{0.05, 0.3, 0.6, 0.9} {
		n := len(begun(&Odds{}, 0).Next(50, price)[0])
		if n >= before {
			t.Errorf("%d tokens are drafted at %.2f, %d at the price before", n, price, before)
		}
		before = n
	}
}

// TestDrafterOfBeams: each row's own end is looked up, a row of which nothing is found goes on as another, and rows
// follow the moves.
func TestDrafterOfBeams(t *testing.T) {
	source := []int32{10, 11, 12, 13, 14, 15, 20, 21, 22, 23, 24, 25}
	d := New(certain(), true, 3, source, []int32{1})
	check := func(name string, want ...[]int32) {
		t.Helper()
		if got := d.Next(9, 0.1); !slices.EqualFunc(got, want, slices.Equal) {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
	check("a prompt that stands nowhere", nil)
	d.Chosen(0, []search.Move{{Parent: 0, Token: 10}, {Parent: 0, Token: 20}, {Parent: 0, Token: 5}})
	check("one token", nil, nil, nil)
	d.Chosen(0, []search.Move{{Parent: 0, Token: 11}, {Parent: 1, Token: 21}, {Parent: 2, Token: 6}})
	check("two tokens", []int32{12, 13, 14}, []int32{22, 23, 24}, []int32{12, 13, 14})
	d.Chosen(1, []search.Move{{Parent: 1, Token: 23}, {Parent: 0, Token: 13}})
	check("rows change places after a position that was accepted", []int32{24, 25}, []int32{14, 15})
	d.Chosen(2, []search.Move{{Parent: 1, Token: 20}})
	check("the end of a text", []int32{21, 22, 23})
}

func BenchmarkDrafter(b *testing.B) {
	r := rand.New(rand.NewPCG(17, 4))
	prompt, text := random(r, 1000, 30), random(r, 1000, 30)
	for b.Loop() {
		follow(New(&Odds{}, false, 0, prompt), text, 0.1)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/2000, "ns/token")
}
