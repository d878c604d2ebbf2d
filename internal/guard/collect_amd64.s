#include "textflag.h"

// func toggleCollect()
//
// The request of valgrind.h: AX points to its number and five arguments, and a sequence that does nothing elsewhere tells
// valgrind of it.
TEXT ·toggleCollect(SB), NOSPLIT, $48-0
	MOVQ $0x43540002, AX // CALLGRIND_TOGGLE_COLLECT of callgrind.h
	MOVQ AX, request-48(SP)
	XORL DX, DX
	MOVQ DX, a-40(SP)
	MOVQ DX, b-32(SP)
	MOVQ DX, c-24(SP)
	MOVQ DX, d-16(SP)
	MOVQ DX, e-8(SP)
	LEAQ request-48(SP), AX
	ROLQ $3, DI
	ROLQ $13, DI
	ROLQ $61, DI
	ROLQ $51, DI
	XCHGQ BX, BX
	RET
