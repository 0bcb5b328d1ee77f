// Code generated from abi/graft_cache.h by abi/gen. DO NOT EDIT.

package abi

// The macros of the header.
const (

	// Slots of a block: block_size of vLLM, page_size of FlashInfer. A slot holds what one layer, or
	// all of them, cache of one token. Slot s is slot s % 16 of block s / 16.
	CacheBlockSize = 16

	// Floats of a cache line of 64 bytes. An area of a block is a whole number of them, so that areas
	// and blocks of an aligned pool begin at a line.
	CacheLineFloats = 16

	// Numbers of a row of int8 that have one scale.
	CacheScaleGroup = 64

	// In a slot mapping: nothing is written for this token.
	CacheNoSlot = -1

	// Columns of a sequence descriptor: int32, one row a sequence. Its tokens are n neighbouring ones
	// of the step. They read S shared slots, of positions 0 .. S - 1, and then m private slots each, of
	// positions S .. S + m - 1, one token's after the other's.
	SequenceFirstToken    = 0 // of the step's tokens, the sequence's first
	SequenceTokens        = 1 // n, at least 1
	SequenceSharedOffset  = 2 // where its slots begin in the list of shared ones
	SequenceShared        = 3 // S
	SequencePrivateOffset = 4 // where its slots begin in the list of private ones
	SequencePrivate       = 5 // m
	SequenceCausal        = 6 // 1: token i is position S - n + i; m is 0
	SequenceReserved      = 7 // 0
	SequenceColumns       = 8

	// Columns of a panel of weights: neighbouring columns, which a kernel multiplies at once.
	PanelColumns = 16
)

// CacheBlocks mirrors graft_cache_blocks.
//
// Blocks that hold so many positions.
func CacheBlocks(positions int64) int64 {
	return (positions + CacheBlockSize - 1) / CacheBlockSize
}

// CacheKVArea mirrors graft_cache_kv_area.
//
// Floats of a layer's area of keys and values in a block: keys [kv_heads][16][head_size], then
// values [kv_heads][16][value_size].
func CacheKVArea(kvHeads, headSize, valueSize int64) int64 {
	return kvHeads * CacheBlockSize * (headSize + valueSize)
}

// CacheKeyOffset mirrors graft_cache_key_offset.
//
// Where the key of a slot and KV head begins, in floats from the pool's first. offset is where the
// layer's area begins in a block.
func CacheKeyOffset(slot, head, blockFloats, offset, headSize int64) int64 {
	return slot/CacheBlockSize*blockFloats + offset + (head*CacheBlockSize+slot%CacheBlockSize)*headSize
}

// CacheValueOffset mirrors graft_cache_value_offset.
//
// Where the value of a slot and KV head begins, in floats from the pool's first.
func CacheValueOffset(slot, head, blockFloats, offset, kvHeads, headSize, valueSize int64) int64 {
	return slot/CacheBlockSize*blockFloats + offset + kvHeads*CacheBlockSize*headSize + (head*CacheBlockSize+slot%CacheBlockSize)*valueSize
}

// CacheRowArea mirrors graft_cache_row_area.
//
// Floats of an area of rows in a block: [16][width] numbers of element_bytes, 4, 2 or 1, rounded up
// to whole lines.
func CacheRowArea(width, elementBytes int64) int64 {
	return (CacheBlockSize*width*elementBytes/4 + CacheLineFloats - 1) / CacheLineFloats * CacheLineFloats
}

// CacheRowOffset mirrors graft_cache_row_offset.
//
// Where the row of a slot begins, in bytes from the pool's first. block_floats and offset count
// floats, whatever element_bytes is.
func CacheRowOffset(slot, blockFloats, offset, width, elementBytes int64) int64 {
	return (slot/CacheBlockSize*blockFloats+offset)*4 + slot%CacheBlockSize*width*elementBytes
}

// CacheInt8Row mirrors graft_cache_int8_row.
//
// Bytes of a row of int8: a float32 scale for each GRAFT_CACHE_SCALE_GROUP numbers, then the
// numbers, filled up to a multiple of 4 bytes. Its areas and offsets are those of rows of so many
// numbers of one byte.
func CacheInt8Row(width int64) int64 {
	return (width+CacheScaleGroup-1)/CacheScaleGroup*4 + (width+3)/4*4
}

// CacheScales mirrors graft_cache_scales.
//
// Floats that scales of keys and values of int8 take: [2][kv_heads][16], those of keys first. They
// stand at the beginning of the area.
func CacheScales(kvHeads int64) int64 {
	return 2 * kvHeads * CacheBlockSize
}

// CacheScaleOffset mirrors graft_cache_scale_offset.
//
// Where the scale of a slot's key stands, in floats from the pool's first; that of a value is the
// one of head kv_heads + head.
func CacheScaleOffset(slot, head, blockFloats, offset int64) int64 {
	return slot/CacheBlockSize*blockFloats + offset + head*CacheBlockSize + slot%CacheBlockSize
}

// CacheTypedKVArea mirrors graft_cache_typed_kv_area.
//
// Floats of a layer's area of keys and values of element_bytes, 4, 2 or 1, after so many floats of
// scales, 0 unless the numbers are int8: as graft_cache_kv_area, rounded up to whole lines.
func CacheTypedKVArea(kvHeads, headSize, valueSize, elementBytes, scales int64) int64 {
	return CacheRowArea(kvHeads*(headSize+valueSize), elementBytes) + scales
}

// CacheTypedKeyOffset mirrors graft_cache_typed_key_offset.
//
// Where the key of a slot and KV head begins, in bytes from the pool's first.
func CacheTypedKeyOffset(slot, head, blockFloats, offset, headSize, elementBytes, scales int64) int64 {
	return (slot/CacheBlockSize*blockFloats+offset+scales)*4 + (head*CacheBlockSize+slot%CacheBlockSize)*headSize*elementBytes
}

// CacheTypedValueOffset mirrors graft_cache_typed_value_offset.
//
// Where the value of a slot and KV head begins, in bytes from the pool's first.
func CacheTypedValueOffset(slot, head, blockFloats, offset, kvHeads, headSize, valueSize, elementBytes, scales int64) int64 {
	return (slot/CacheBlockSize*blockFloats+offset+scales)*4 + (kvHeads*CacheBlockSize*headSize+(head*CacheBlockSize+slot%CacheBlockSize)*valueSize)*elementBytes
}

// Panels mirrors graft_panels.
//
// Panels of so many columns, the last one filled with zeros.
func Panels(columns int64) int64 {
	return (columns + PanelColumns - 1) / PanelColumns
}

// PanelOffset mirrors graft_panel_offset.
//
// Where element `row` of column `column` stands in weights [panels][depth][16].
func PanelOffset(column, row, depth int64) int64 {
	return (column/PanelColumns*depth+row)*PanelColumns + column%PanelColumns
}
