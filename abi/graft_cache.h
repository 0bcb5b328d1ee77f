/* The KV cache of graft generate, as operators of plugins read and write it: the numbers and
 * formulas that the host and every operator over the cache must agree on. What they are for, and
 * who writes what when, stands in README.md, under "The KV cache". Plain C, host code only; whoever
 * compiles for a device takes the constants from here.
 *
 * All of this belongs to ABI major 1: another block size, another column or another layout of what
 * is there raises it. A layout beside these, which no operator is given that does not describe it,
 * does not.
 *
 * Restricted like graft_plugin.h, so that abi/gen can mirror it in Go: constants of one number, and
 * functions of int64_t whose body is one return. Sizes and offsets are not checked for overflow. */
#ifndef GRAFT_CACHE_H_
#define GRAFT_CACHE_H_

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Slots of a block: block_size of vLLM, page_size of FlashInfer. A slot holds what one layer, or
 * all of them, cache of one token. Slot s is slot s % 16 of block s / 16. */
#define GRAFT_CACHE_BLOCK_SIZE 16

/* Floats of a cache line of 64 bytes. An area of a block is a whole number of them, so that areas
 * and blocks of an aligned pool begin at a line. */
#define GRAFT_CACHE_LINE_FLOATS 16

/* Numbers of a row of int8 that have one scale. */
#define GRAFT_CACHE_SCALE_GROUP 64

/* In a slot mapping: nothing is written for this token. */
#define GRAFT_CACHE_NO_SLOT (-1)

/* Columns of a sequence descriptor: int32, one row a sequence. Its tokens are n neighbouring ones
 * of the step. They read S shared slots, of positions 0 .. S - 1, and then m private slots each, of
 * positions S .. S + m - 1, one token's after the other's. */
#define GRAFT_SEQUENCE_FIRST_TOKEN 0    /* of the step's tokens, the sequence's first */
#define GRAFT_SEQUENCE_TOKENS 1         /* n, at least 1 */
#define GRAFT_SEQUENCE_SHARED_OFFSET 2  /* where its slots begin in the list of shared ones */
#define GRAFT_SEQUENCE_SHARED 3         /* S */
#define GRAFT_SEQUENCE_PRIVATE_OFFSET 4 /* where its slots begin in the list of private ones */
#define GRAFT_SEQUENCE_PRIVATE 5        /* m */
#define GRAFT_SEQUENCE_CAUSAL 6         /* 1: token i is position S - n + i; m is 0 */
#define GRAFT_SEQUENCE_RESERVED 7       /* 0 */
#define GRAFT_SEQUENCE_COLUMNS 8

/* Columns of a panel of weights: neighbouring columns, which a kernel multiplies at once. */
#define GRAFT_PANEL_COLUMNS 16

/* Blocks that hold so many positions. */
static inline int64_t graft_cache_blocks(int64_t positions) {
  return (positions + GRAFT_CACHE_BLOCK_SIZE - 1) / GRAFT_CACHE_BLOCK_SIZE;
}

/* Floats of a layer's area of keys and values in a block: keys [kv_heads][16][head_size], then
 * values [kv_heads][16][value_size]. */
static inline int64_t graft_cache_kv_area(int64_t kv_heads, int64_t head_size, int64_t value_size) {
  return kv_heads * GRAFT_CACHE_BLOCK_SIZE * (head_size + value_size);
}

/* Where the key of a slot and KV head begins, in floats from the pool's first. offset is where the
 * layer's area begins in a block. */
static inline int64_t graft_cache_key_offset(int64_t slot, int64_t head, int64_t block_floats,
                                             int64_t offset, int64_t head_size) {
  return slot / GRAFT_CACHE_BLOCK_SIZE * block_floats + offset +
         (head * GRAFT_CACHE_BLOCK_SIZE + slot % GRAFT_CACHE_BLOCK_SIZE) * head_size;
}

/* Where the value of a slot and KV head begins, in floats from the pool's first. */
static inline int64_t graft_cache_value_offset(int64_t slot, int64_t head, int64_t block_floats,
                                               int64_t offset, int64_t kv_heads, int64_t head_size,
                                               int64_t value_size) {
  return slot / GRAFT_CACHE_BLOCK_SIZE * block_floats + offset +
         kv_heads * GRAFT_CACHE_BLOCK_SIZE * head_size +
         (head * GRAFT_CACHE_BLOCK_SIZE + slot % GRAFT_CACHE_BLOCK_SIZE) * value_size;
}

/* Floats of an area of rows in a block: [16][width] numbers of element_bytes, 4, 2 or 1, rounded up
 * to whole lines. */
static inline int64_t graft_cache_row_area(int64_t width, int64_t element_bytes) {
  return (GRAFT_CACHE_BLOCK_SIZE * width * element_bytes / 4 + GRAFT_CACHE_LINE_FLOATS - 1) /
         GRAFT_CACHE_LINE_FLOATS * GRAFT_CACHE_LINE_FLOATS;
}

/* Where the row of a slot begins, in bytes from the pool's first. block_floats and offset count
 * floats, whatever element_bytes is. */
static inline int64_t graft_cache_row_offset(int64_t slot, int64_t block_floats, int64_t offset,
                                             int64_t width, int64_t element_bytes) {
  return (slot / GRAFT_CACHE_BLOCK_SIZE * block_floats + offset) * 4 +
         slot % GRAFT_CACHE_BLOCK_SIZE * width * element_bytes;
}

/* Bytes of a row of int8: a float32 scale for each GRAFT_CACHE_SCALE_GROUP numbers, then the
 * numbers, filled up to a multiple of 4 bytes. Its areas and offsets are those of rows of so many
 * numbers of one byte. */
static inline int64_t graft_cache_int8_row(int64_t width) {
  return (width + GRAFT_CACHE_SCALE_GROUP - 1) / GRAFT_CACHE_SCALE_GROUP * 4 + (width + 3) / 4 * 4;
}

/* Floats that scales of keys and values of int8 take: [2][kv_heads][16], those of keys first. They
 * stand at the beginning of the area. */
static inline int64_t graft_cache_scales(int64_t kv_heads) {
  return 2 * kv_heads * GRAFT_CACHE_BLOCK_SIZE;
}

/* Where the scale of a slot's key stands, in floats from the pool's first; that of a value is the
 * one of head kv_heads + head. */
static inline int64_t graft_cache_scale_offset(int64_t slot, int64_t head, int64_t block_floats,
                                               int64_t offset) {
  return slot / GRAFT_CACHE_BLOCK_SIZE * block_floats + offset + head * GRAFT_CACHE_BLOCK_SIZE +
         slot % GRAFT_CACHE_BLOCK_SIZE;
}

/* Floats of a layer's area of keys and values of element_bytes, 4, 2 or 1, after so many floats of
 * scales, 0 unless the numbers are int8: as graft_cache_kv_area, rounded up to whole lines. */
static inline int64_t graft_cache_typed_kv_area(int64_t kv_heads, int64_t head_size,
                                                int64_t value_size, int64_t element_bytes,
                                                int64_t scales) {
  return graft_cache_row_area(kv_heads * (head_size + value_size), element_bytes) + scales;
}

/* Where the key of a slot and KV head begins, in bytes from the pool's first. */
static inline int64_t graft_cache_typed_key_offset(int64_t slot, int64_t head, int64_t block_floats,
                                                   int64_t offset, int64_t head_size,
                                                   int64_t element_bytes, int64_t scales) {
  return (slot / GRAFT_CACHE_BLOCK_SIZE * block_floats + offset + scales) * 4 +
         (head * GRAFT_CACHE_BLOCK_SIZE + slot % GRAFT_CACHE_BLOCK_SIZE) * head_size *
             element_bytes;
}

/* Where the value of a slot and KV head begins, in bytes from the pool's first. */
static inline int64_t graft_cache_typed_value_offset(int64_t slot, int64_t head,
                                                     int64_t block_floats, int64_t offset,
                                                     int64_t kv_heads, int64_t head_size,
                                                     int64_t value_size, int64_t element_bytes,
                                                     int64_t scales) {
  return (slot / GRAFT_CACHE_BLOCK_SIZE * block_floats + offset + scales) * 4 +
         (kv_heads * GRAFT_CACHE_BLOCK_SIZE * head_size +
          (head * GRAFT_CACHE_BLOCK_SIZE + slot % GRAFT_CACHE_BLOCK_SIZE) * value_size) *
             element_bytes;
}

/* Panels of so many columns, the last one filled with zeros. */
static inline int64_t graft_panels(int64_t columns) {
  return (columns + GRAFT_PANEL_COLUMNS - 1) / GRAFT_PANEL_COLUMNS;
}

/* Where element `row` of column `column` stands in weights [panels][depth][16]. */
static inline int64_t graft_panel_offset(int64_t column, int64_t row, int64_t depth) {
  return (column / GRAFT_PANEL_COLUMNS * depth + row) * GRAFT_PANEL_COLUMNS +
         column % GRAFT_PANEL_COLUMNS;
}

#ifdef __cplusplus
}
#endif

#endif /* GRAFT_CACHE_H_ */
