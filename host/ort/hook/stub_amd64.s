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

// STUB passes a site, of 32 bytes, and has its address in runStubs.
#define STUB(name, offset, slot) \
TEXT name(SB), NOSPLIT|NOFRAME, $0-0; \
	LEAQ ·sites+offset(SB), R11; \
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
