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

TEXT ·runStub0(SB), NOSPLIT|NOFRAME, $0-0
	MOVD $·sites+0(SB), R16
	JMP  ·runStub(SB)

TEXT ·runStub1(SB), NOSPLIT|NOFRAME, $0-0
	MOVD $·sites+32(SB), R16
	JMP  ·runStub(SB)

TEXT ·runStub2(SB), NOSPLIT|NOFRAME, $0-0
	MOVD $·sites+64(SB), R16
	JMP  ·runStub(SB)

TEXT ·runStub3(SB), NOSPLIT|NOFRAME, $0-0
	MOVD $·sites+96(SB), R16
	JMP  ·runStub(SB)

TEXT ·runStub4(SB), NOSPLIT|NOFRAME, $0-0
	MOVD $·sites+128(SB), R16
	JMP  ·runStub(SB)

TEXT ·runStub5(SB), NOSPLIT|NOFRAME, $0-0
	MOVD $·sites+160(SB), R16
	JMP  ·runStub(SB)

TEXT ·runStub6(SB), NOSPLIT|NOFRAME, $0-0
	MOVD $·sites+192(SB), R16
	JMP  ·runStub(SB)

TEXT ·runStub7(SB), NOSPLIT|NOFRAME, $0-0
	MOVD $·sites+224(SB), R16
	JMP  ·runStub(SB)

DATA ·runStubs+0(SB)/8, $·runStub0(SB)
DATA ·runStubs+8(SB)/8, $·runStub1(SB)
DATA ·runStubs+16(SB)/8, $·runStub2(SB)
DATA ·runStubs+24(SB)/8, $·runStub3(SB)
DATA ·runStubs+32(SB)/8, $·runStub4(SB)
DATA ·runStubs+40(SB)/8, $·runStub5(SB)
DATA ·runStubs+48(SB)/8, $·runStub6(SB)
DATA ·runStubs+56(SB)/8, $·runStub7(SB)
GLOBL ·runStubs(SB), RODATA, $64
