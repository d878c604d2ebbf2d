#include "textflag.h"

// func own(p unsafe.Pointer, lines int)
// PREFETCHW asks for a cache line in a state that can be written, and does not wait for it.
TEXT ·own(SB), NOSPLIT, $0-16
	MOVQ p+0(FP), AX
	MOVQ lines+8(FP), CX
next:
	TESTQ CX, CX
	JLE done
	BYTE $0x0f; BYTE $0x0d; BYTE $0x08 // PREFETCHW (AX)
	ADDQ $64, AX
	DECQ CX
	JMP next
done:
	RET

// func fetch(p unsafe.Pointer, lines int)
TEXT ·fetch(SB), NOSPLIT, $0-16
	MOVQ p+0(FP), AX
	MOVQ lines+8(FP), CX
again:
	TESTQ CX, CX
	JLE enough
	PREFETCHT0 (AX)
	ADDQ $64, AX
	DECQ CX
	JMP again
enough:
	RET
