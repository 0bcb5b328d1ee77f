#include "textflag.h"

// What stands in the slots of functions that run sessions, for C to call: each passes a site to runStub in R16.
// It calls ONNX Runtime's own function, and Go only where that fails or the site is watched. A frame of
// frame_arm64.go is what Go is told.
TEXT ·runStub(SB), NOSPLIT|NOFRAME, $0-0
	SUB  $112, RSP
	STP  (R29, R30), 0(RSP)
	STP  (R0, R1), 16(RSP)
	STP  (R2, R3), 32(RSP)
	STP  (R4, R5), 48(RSP)
	STP  (R6, R7), 64(RSP)
	MOVD R16, 80(RSP)
	MOVD 16(R16), R17
	CBNZ R17, watched
	MOVD 0(R16), R17
	CALL (R17)
	CBNZ R0, failed
	LDP  0(RSP), (R29, R30)
	ADD  $112, RSP
	RET

failed:
	MOVD R0, 88(RSP)
	MOVD $1, R17
	MOVD R17, 96(RSP)
	JMP  tell

watched:
	MOVD ZR, 88(RSP)
	MOVD ZR, 96(RSP)

tell:
	ADD  $16, RSP, R0
	MOVD 80(RSP), R16
	MOVD 8(R16), R17
	CALL (R17)
	LDP  0(RSP), (R29, R30)
	ADD  $112, RSP
	RET

// STUB passes a site, of 32 bytes, and has its address in runStubs.
#define STUB(name, offset, slot) \
TEXT name(SB), NOSPLIT|NOFRAME, $0-0; \
	MOVD $·sites+offset(SB), R16; \
	JMP  ·runStub(SB); \
DATA ·runStubs+slot(SB)/8, $name(SB)

STUB(·runStub0, 0, 0)
STUB(·runStub1, 32, 8)
STUB(·runStub2, 64, 16)
STUB(·runStub3, 96, 24)
STUB(·runStub4, 128, 32)
STUB(·runStub5, 160, 40)
STUB(·runStub6, 192, 48)
STUB(·runStub7, 224, 56)
GLOBL ·runStubs(SB), RODATA, $64
