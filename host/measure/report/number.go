package report

import (
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/opgraft/graft/host/measure/statistics"
)

// num is a number of the result as it is shown: printed is of its value times scale.
func num(value float64, at, printed string) number {
	return number{Text: printed, Value: strconv.FormatFloat(value, 'g', -1, 64), At: at}
}

// scaled is num of another unit than the result's.
func scaled(value, scale float64, at, printed string) number {
	n := num(value, at, printed)
	n.Scale = strconv.FormatFloat(scale, 'g', -1, 64)
	return n
}

// decimals shows a column of numbers to three digits of its least.
func decimals(values []float64) int {
	least := math.Inf(1)
	for _, v := range values {
		if v = math.Abs(v); v > 0 {
			least = min(least, v)
		}
	}
	switch {
	case least < 0.01:
		return 4
	case least < 1:
		return 3
	case least < 10:
		return 2
	case least < 100:
		return 1
	}
	return 0
}

func fixed(x float64, decimals int) string { return strconv.FormatFloat(x, 'f', decimals, 64) }

// times is a speed-up in words, without the sign of multiplication where that is a column's.
func times(x float64) string { return fmt.Sprintf("%.2f", x) }

// difference prints an error; the largest there is stands for NaN and infinity.
func difference(x float64) string {
	switch {
	case x == math.MaxFloat64:
		return "not finite"
	case x == 0:
		return "0"
	}
	return fmt.Sprintf("%.3g", x)
}

// cosine prints a similarity so that only 1 looks like 1.
func cosine(x float64) string {
	digits := 6
	for digits < 10 && x < 1 && fixed(x, digits) == fixed(1, digits) {
		digits++
	}
	if digits == 10 {
		digits = 6
	}
	return fixed(x, digits)
}

// interval is "low to high" of a speed-up.
func interval(s statistics.Speedup, at string) cell {
	low := num(s.CI95[0], at+"/ci95/0", times(s.CI95[0]))
	high := num(s.CI95[1], at+"/ci95/1", times(s.CI95[1]))
	low.After = " to "
	high.After = "×"
	return cell{Number: &low, More: []number{high}}
}

// speedup is a cell of one.
func speedup(s statistics.Speedup, at string) cell {
	n := num(s.Median, at+"/median", times(s.Median))
	n.After = "×"
	c := cell{Number: &n, Class: "even"}
	switch {
	case !s.Significant:
		n.Before = "~ "
	case s.Median > 1:
		c.Class = "good"
	default:
		c.Class = "bad"
	}
	return c
}

// pvalue prints the probability of a test.
func pvalue(p float64, at string) cell {
	text := fixed(p, 4)
	if p < 0.0001 {
		text = fmt.Sprintf("%.0e", p)
	}
	n := num(p, at+"/p", text)
	return cell{Number: &n}
}

func text(s string) cell { return cell{Text: s} }
func code(s string) cell { return cell{Text: s, Code: true} }

func one(n number) cell { return cell{Number: &n} }

func count(n int, at string) cell { return one(num(float64(n), at, strconv.Itoa(n))) }

// megabytes is a cell of bytes; nothing where the system did not say.
func megabytes(bytes int64, at string) cell {
	if bytes <= 0 {
		return text("not known")
	}
	return one(scaled(float64(bytes), 1e-6, at, fixed(float64(bytes)/1e6, 1)))
}

// thin takes at most n of a list, evenly.
func thin(list []float64, n int) []float64 {
	if len(list) <= n {
		return list
	}
	out := make([]float64, 0, n)
	sorted := slices.Sorted(slices.Values(list))
	for i := range n {
		out = append(out, sorted[i*(len(sorted)-1)/max(n-1, 1)])
	}
	return out
}
