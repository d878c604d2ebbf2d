#include "textflag.h"

// func prefetchW(p unsafe.Pointer, lines int)
// PREFETCHW requests a cache line in a state that can be written, and does not wait for it.
TEXT ·prefetchW(SB), NOSPLIT, $0-16
	MOVQ p+0(FP), AX
	MOVQ lines+8(FP), CX
	TESTQ CX, CX
	JLE done
next:
	BYTE $0x0f; BYTE $0x0d; BYTE $0x08 // PREFETCHW (AX)
	ADDQ $64, AX
	DECQ CX
	JNZ next
done:
	RET

// func prefetch(p unsafe.Pointer, lines int)
TEXT ·prefetch(SB), NOSPLIT, $0-16
	MOVQ p+0(FP), AX
	MOVQ lines+8(FP), CX
	TESTQ CX, CX
	JLE enough
again:
	PREFETCHT0 (AX)
	ADDQ $64, AX
	DECQ CX
	JNZ again
enough:
	RET
