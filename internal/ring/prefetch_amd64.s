#include "textflag.h"

// Two lines a turn. No line beyond the last is touched: it may be one that the other side works on.

// func prefetchW(p unsafe.Pointer, lines int)
// PREFETCHW requests a cache line in a state that can be written, and does not wait for it.
TEXT ·prefetchW(SB), NOSPLIT, $0-16
	MOVQ p+0(FP), AX
	MOVQ lines+8(FP), CX
	TESTQ CX, CX
	JLE done
	SHRQ $1, CX
	JCC even
	BYTE $0x0f; BYTE $0x0d; BYTE $0x08 // PREFETCHW (AX)
	ADDQ $64, AX
even:
	TESTQ CX, CX
	JZ done
next:
	BYTE $0x0f; BYTE $0x0d; BYTE $0x08             // PREFETCHW (AX)
	BYTE $0x0f; BYTE $0x0d; BYTE $0x48; BYTE $0x40 // PREFETCHW 64(AX)
	ADDQ $128, AX
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
	SHRQ $1, CX
	JCC pairs
	PREFETCHT0 (AX)
	ADDQ $64, AX
pairs:
	TESTQ CX, CX
	JZ enough
again:
	PREFETCHT0 (AX)
	PREFETCHT0 64(AX)
	ADDQ $128, AX
	DECQ CX
	JNZ again
enough:
	RET
