package abi

import (
	"github.com/opgraft/graft/internal/must"
	"testing"
)

// TestCacheExamples are the worked examples of "The KV cache" in abi/README.md; abi/tests/cache_test.cc
// checks the header with the same.
func TestCacheExamples(t *testing.T) {
	area := CacheKVArea(2, 4, 4)
	for _, c := range []struct {
		what      string
		got, want int64
	}{
		{"area of keys and values", area, 256},
		{"key of slot 19, head 1, in the second layer", CacheKeyOffset(19, 1, 2*area, area, 4), 844},
		{"value of slot 19, head 1, in the second layer", CacheValueOffset(19, 1, 2*area, area, 2, 4, 4), 972},
		{"area of float32 rows of 5", CacheRowArea(5, 4), 80},
		{"area of float16 rows of 5, in whole lines", CacheRowArea(5, 2), 48},
		{"area of float16 rows of 6", CacheRowArea(6, 2), 48},
		{"byte of the float16 row of slot 19", CacheRowOffset(19, 48, 0, 5, 2), 222},
		{"area of halves of 2 heads of 4 and 4", CacheTypedKVArea(2, 4, 4, 2, 0), 128},
		{"area of int8 of 2 heads of 4 and 4", CacheTypedKVArea(2, 4, 4, 1, CacheScales(2)), 128},
		{"float32 has no other area", CacheTypedKVArea(3, 5, 7, 4, 0), CacheKVArea(3, 5, 7)},
		{"nor other keys", CacheTypedKeyOffset(19, 1, 512, 256, 4, 4, 0), 4 * CacheKeyOffset(19, 1, 512, 256, 4)},
		{"nor other values", CacheTypedValueOffset(19, 1, 512, 256, 2, 4, 6, 4, 0),
			4 * CacheValueOffset(19, 1, 512, 256, 2, 4, 6)},
		{"byte of the int8 key of slot 19 and head 1", CacheTypedKeyOffset(19, 1, 128, 0, 4, 1, CacheScales(2)), 844},
		{"byte of its value", CacheTypedValueOffset(19, 1, 128, 0, 2, 4, 4, 1, CacheScales(2)), 844 + 2*16*4},
		{"float of its scale", CacheScaleOffset(19, 1, 128, 0), 147},
		{"float of its value's scale", CacheScaleOffset(19, 2+1, 128, 0), 179},
		{"bytes of an int8 row of 70", CacheInt8Row(70), 80},
		{"bytes of an int8 row of 64", CacheInt8Row(64), 68},
		{"blocks of no position", CacheBlocks(0), 0},
		{"blocks of 16 positions", CacheBlocks(16), 1},
		{"blocks of 17 positions", CacheBlocks(17), 2},
		{"panels of 16 columns", Panels(16), 1},
		{"panels of 20 columns", Panels(20), 2},
		{"row 3 of column 17 in panels of depth 8", PanelOffset(17, 3, 8), 177},
	} {
		must.Equal(t, c.got, c.want, c.what)
	}
}
