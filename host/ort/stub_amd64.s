#include "textflag.h"

// What stands in the slots of functions that run sessions, for C to call: each passes a site to runStub in R11.
// It calls ONNX Runtime's own function, and Go only where that fails or the site is watched. A frame of
// frame_amd64.go is what Go is told.
TEXT ·runStub(SB), NOSPLIT|NOFRAME, $0-0
	SUBQ $88, SP
	MOVQ DI, 16(SP)
	MOVQ SI, 24(SP)
	MOVQ DX, 32(SP)
	MOVQ CX, 40(SP)
	MOVQ R8, 48(SP)
	MOVQ R9, 56(SP)
	MOVQ R11, 64(SP)
	CMPQ 16(R11), $0
	JNE  watched
	MOVQ 96(SP), AX
	MOVQ AX, 0(SP)
	MOVQ 104(SP), AX
	MOVQ AX, 8(SP)
	MOVQ 0(R11), AX
	CALL AX
	TESTQ AX, AX
	JNE  failed
	ADDQ $88, SP
	RET

failed:
	MOVQ AX, 72(SP)
	MOVQ $1, 80(SP)
	JMP  tell

watched:
	MOVQ $0, 72(SP)
	MOVQ $0, 80(SP)

tell:
	LEAQ 16(SP), DI
	MOVQ 64(SP), R11
	MOVQ 8(R11), AX
	CALL AX
	ADDQ $88, SP
	RET

TEXT ·runStub0(SB), NOSPLIT|NOFRAME, $0-0
	LEAQ ·sites+0(SB), R11
	JMP  ·runStub(SB)

TEXT ·runStub1(SB), NOSPLIT|NOFRAME, $0-0
	LEAQ ·sites+32(SB), R11
	JMP  ·runStub(SB)

TEXT ·runStub2(SB), NOSPLIT|NOFRAME, $0-0
	LEAQ ·sites+64(SB), R11
	JMP  ·runStub(SB)

TEXT ·runStub3(SB), NOSPLIT|NOFRAME, $0-0
	LEAQ ·sites+96(SB), R11
	JMP  ·runStub(SB)

TEXT ·runStub4(SB), NOSPLIT|NOFRAME, $0-0
	LEAQ ·sites+128(SB), R11
	JMP  ·runStub(SB)

TEXT ·runStub5(SB), NOSPLIT|NOFRAME, $0-0
	LEAQ ·sites+160(SB), R11
	JMP  ·runStub(SB)

TEXT ·runStub6(SB), NOSPLIT|NOFRAME, $0-0
	LEAQ ·sites+192(SB), R11
	JMP  ·runStub(SB)

TEXT ·runStub7(SB), NOSPLIT|NOFRAME, $0-0
	LEAQ ·sites+224(SB), R11
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
