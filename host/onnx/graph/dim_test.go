package graph

import (
	"github.com/opgraft/graft/internal/must"
	"math"
	"math/big"
	"math/rand/v2"
	"testing"
)

func TestDimString(t *testing.T) {
	b, p, s := DimSym("batch"), DimSym("past"), DimSym("seq")
	for _, c := range []struct {
		d    Dim
		want string
	}{
		{Dim{}, "?"},
		{DimInt(0), "0"},
		{DimInt(-7), "-7"},
		{b, "batch"},
		{b.Mul(DimInt(64)), "batch*64"},
		{s.Add(p), "past + seq"},
		{s.sub(p), "-past + seq"},
		{p.Add(s).sub(p), "seq"},
		{b.sub(b), "0"},
		{b.Mul(s).Add(b.Mul(p)).Add(DimInt(1)), "batch*past + batch*seq + 1"},
		{b.Add(DimInt(1)).Mul(b.sub(DimInt(1))), "batch*batch - 1"},
		{DimInt(3).sub(b.Mul(DimInt(2))), "-batch*2 + 3"},
		{b.Mul(DimInt(0)), "0"},
		{Dim{}.Mul(DimInt(0)), "0"},
		{Dim{}.Add(DimInt(0)), "?"},
		{DimInt(math.MaxInt64).Add(DimInt(1)), "?"},
		{DimInt(math.MaxInt64).Mul(DimInt(2)), "?"},
		{DimInt(math.MinInt64).sub(DimInt(1)), "?"},
		{b.Mul(DimInt(math.MaxInt64)).Mul(s.Mul(DimInt(3))), "?"},
	} {
		must.Equal(t, c.d.String(), c.want)
	}
}

func TestParseDim(t *testing.T) {
	for name, want := range map[string]string{
		"batch_size":              "batch_size",
		"past + seq":              "past + seq",
		"seq+past":                "past + seq",
		"sequence_length + 1":     "sequence_length + 1",
		"2*s0":                    "s0*2",
		"(s0 + 1)*2":              "s0*2 + 2",
		"s0 - 1":                  "s0 - 1",
		"a - (b - c)":             "a - b + c",
		"encoder-length":          "encoder-length",
		"unk__0":                  "unk__0",
		"12":                      "12",
		"floor(s0/2)":             "floor(s0/2)",
		"s0**2":                   "s0**2",
		"s0 +":                    "s0 +",
		"a b":                     "a b",
		"(a":                      "(a",
		"a)":                      "a)",
		"99999999999999999999":    "99999999999999999999",
		"9223372036854775807 + 9": "9223372036854775807 + 9",
		"\xff":                    "\xff",
	} {
		must.Equal(t, parseDim(name).String(), want, name)
	}
}

func TestDimDiv(t *testing.T) {
	for _, c := range []struct{ d, by, want string }{
		{"batch*seq*768", "batch*seq", "768"},
		{"batch*seq*768", "batch*12*64", "seq"},
		{"batch*past*64 + batch*seq*64", "batch*64", "past + seq"},
		{"batch*past + batch*seq", "past + seq", "batch"},
		{"a*a - b*b", "a - b", "a + b"},
		{"a*a + 2*a*b + b*b", "a + b", "a + b"},
		{"0", "a", "0"},
		{"6", "2", "3"},
		{"7", "2", ""},
		{"a", "0", ""},
		{"a", "b", ""},
		{"a + 1", "a", ""},
		{"a*3", "2", ""},
		{"a*a + 1", "a + 1", ""},
	} {
		q, ok := parseDim(c.d).Div(parseDim(c.by))
		if got := q.String(); ok != (c.want != "") || ok && got != c.want {
			t.Errorf("(%s) / (%s): got %s %v, want %q", c.d, c.by, got, ok, c.want)
		}
	}
	for _, c := range [][2]Dim{{Dim{}, DimInt(1)}, {DimInt(1), Dim{}}, {DimInt(math.MinInt64), DimInt(-1)}} {
		if q, ok := c[0].Div(c[1]); ok {
			t.Errorf("%s / %s: got %s, want none", c[0], c[1], q)
		}
	}
}

func TestDimEqualNeedsKnowledge(t *testing.T) {
	var unknown Dim
	if unknown.Equal(unknown) || unknown.Known() || DimSym("a").Equal(unknown) {
		t.Error("an unknown length equals something")
	}
	if _, ok := unknown.Const(); ok {
		t.Error("an unknown length is a number")
	}
	must.Equal(t, parseDim("c*a + b*b").Symbols(), []string{"a", "b", "c"})
}

// randomDim makes a polynomial, and the same as a function of big integers.
func randomDim(r *rand.Rand, names []string) (Dim, func(map[string]int64) *big.Int) {
	pick := func() (Dim, func(map[string]int64) *big.Int) {
		if r.IntN(3) == 0 {
			n := r.Int64N(9) - 4
			return DimInt(n), func(map[string]int64) *big.Int { return big.NewInt(n) }
		}
		name := names[r.IntN(len(names))]
		return DimSym(name), func(at map[string]int64) *big.Int { return big.NewInt(at[name]) }
	}
	d, f := pick()
	for range r.IntN(6) {
		e, g := pick()
		h := f
		switch r.IntN(3) {
		case 0:
			d, f = d.Add(e), func(at map[string]int64) *big.Int { return new(big.Int).Add(h(at), g(at)) }
		case 1:
			d, f = d.sub(e), func(at map[string]int64) *big.Int { return new(big.Int).Sub(h(at), g(at)) }
		case 2:
			d, f = d.Mul(e), func(at map[string]int64) *big.Int { return new(big.Int).Mul(h(at), g(at)) }
		}
	}
	return d, f
}

// TestDimAgreesWithIntegers evaluates random polynomials at random lengths.
func TestDimAgreesWithIntegers(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	names := []string{"a", "b", "c", "batch"}
	divided := 0
	for range 20000 {
		d, f := randomDim(r, names)
		e, g := randomDim(r, names)
		at := map[string]int64{}
		for _, n := range names {
			at[n] = r.Int64N(50)
		}
		check := func(op string, got Dim, want *big.Int) {
			t.Helper()
			n, ok := got.Eval(at)
			if !ok || want.Cmp(big.NewInt(n)) != 0 {
				t.Fatalf("(%s) %s (%s) = %s: at %v got %d %v, want %s", d, op, e, got, at, n, ok, want)
			}
		}
		x, y := f(at), g(at)
		check("", d, x)
		check("+", d.Add(e), new(big.Int).Add(x, y))
		check("-", d.sub(e), new(big.Int).Sub(x, y))
		check("*", d.Mul(e), new(big.Int).Mul(x, y))
		if q, ok := d.Mul(e).Div(e); e.Is(0) == ok || ok && !q.Equal(d) {
			t.Fatalf("(%s)*(%s)/(%s): got %s %v", d, e, e, q, ok)
		}
		if q, ok := d.Div(e); ok {
			divided++
			if !q.Mul(e).Equal(d) {
				t.Fatalf("(%s)/(%s) = %s is not exact", d, e, q)
			}
		}
		if back := parseDim(d.String()); d.String()[0] != '-' && !back.Equal(d) {
			t.Fatalf("%s is read as %s", d, back)
		}
		if s := d.sign(); s != 0 && s != x.Sign() || d.atLeastZero() && x.Sign() < 0 {
			t.Fatalf("%s is said to have sign %d, at %v it is %s", d, s, at, x)
		}
		if d.Add(e).Equal(e.Add(d)) == false || !d.Mul(e).Equal(e.Mul(d)) {
			t.Fatalf("%s and %s do not commute", d, e)
		}
	}
	if divided == 0 {
		t.Error("no division was exact: the test tests nothing")
	}
}

func TestDimStaysSmall(t *testing.T) {
	sum := DimInt(0)
	for i := range 40 {
		sum = sum.Add(DimSym(string(rune('a' + i))))
		if i < maxDimTerms != sum.Known() {
			t.Fatalf("after %d terms: %s", i+1, sum)
		}
	}
	power := DimSym("a")
	for range 100 {
		power = power.Mul(DimSym("a").Add(DimInt(1)))
	}
	if power.Known() {
		t.Errorf("a polynomial of degree 101 is kept: %s", power)
	}
}

func TestDimEvalRefuses(t *testing.T) {
	if n, ok := DimSym("a").Eval(nil); ok {
		t.Errorf("a missing symbol gives %d", n)
	}
	if n, ok := DimSym("a").Mul(DimSym("a")).Eval(map[string]int64{"a": 1 << 40}); ok {
		t.Errorf("an overflow gives %d", n)
	}
	if n, ok := (Dim{}).Eval(nil); ok {
		t.Errorf("an unknown length gives %d", n)
	}
}
