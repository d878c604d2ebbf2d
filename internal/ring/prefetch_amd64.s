#include "textflag.h"

// Four lines a turn. No line beyond the last is touched: it may be one that the other side works on.

// func prefetchW(p unsafe.Pointer, lines int)
// PREFETCHW requests a cache line in a state that can be written, and does not wait for it.
TEXT ·prefetchW(SB), NOSPLIT, $0-16
	MOVQ p+0(FP), AX
	MOVQ lines+8(FP), CX
	TESTQ CX, CX
	JLE done
	SUBQ $4, CX
	JLT rest
next:
	BYTE $0x0f; BYTE $0x0d; BYTE $0x08                                           // PREFETCHW (AX)
	BYTE $0x0f; BYTE $0x0d; BYTE $0x48; BYTE $0x40                               // PREFETCHW 64(AX)
	BYTE $0x0f; BYTE $0x0d; BYTE $0x88; BYTE $0x80; BYTE $0; BYTE $0; BYTE $0    // PREFETCHW 128(AX)
	BYTE $0x0f; BYTE $0x0d; BYTE $0x88; BYTE $0xc0; BYTE $0; BYTE $0; BYTE $0    // PREFETCHW 192(AX)
	ADDQ $256, AX
	SUBQ $4, CX
	JGE next
rest:
	ADDQ $4, CX
	JZ done
one:
	BYTE $0x0f; BYTE $0x0d; BYTE $0x08 // PREFETCHW (AX)
	ADDQ $64, AX
	DECQ CX
	JNZ one
done:
	RET

// Four slots, of each the first line.

// func prefetchSlotsW(p unsafe.Pointer)
TEXT ·prefetchSlotsW(SB), NOSPLIT, $0-8
	MOVQ p+0(FP), AX
	BYTE $0x0f; BYTE $0x0d; BYTE $0x08                                           // PREFETCHW (AX)
	BYTE $0x0f; BYTE $0x0d; BYTE $0x88; BYTE $0x80; BYTE $0; BYTE $0; BYTE $0    // PREFETCHW 128(AX)
	BYTE $0x0f; BYTE $0x0d; BYTE $0x88; BYTE $0; BYTE $1; BYTE $0; BYTE $0       // PREFETCHW 256(AX)
	BYTE $0x0f; BYTE $0x0d; BYTE $0x88; BYTE $0x80; BYTE $1; BYTE $0; BYTE $0    // PREFETCHW 384(AX)
	RET

// func prefetchSlots(p unsafe.Pointer)
TEXT ·prefetchSlots(SB), NOSPLIT, $0-8
	MOVQ p+0(FP), AX
	PREFETCHT0 (AX)
	PREFETCHT0 128(AX)
	PREFETCHT0 256(AX)
	PREFETCHT0 384(AX)
	RET

// func prefetch(p unsafe.Pointer, lines int)
TEXT ·prefetch(SB), NOSPLIT, $0-16
	MOVQ p+0(FP), AX
	MOVQ lines+8(FP), CX
	TESTQ CX, CX
	JLE enough
	SUBQ $4, CX
	JLT few
again:
	PREFETCHT0 (AX)
	PREFETCHT0 64(AX)
	PREFETCHT0 128(AX)
	PREFETCHT0 192(AX)
	ADDQ $256, AX
	SUBQ $4, CX
	JGE again
few:
	ADDQ $4, CX
	JZ enough
single:
	PREFETCHT0 (AX)
	ADDQ $64, AX
	DECQ CX
	JNZ single
enough:
	RET

// func stream(dst, src unsafe.Pointer, lines int)
// Two lines a turn. Stores that go past the caches are not ordered with others: SFENCE puts them before what follows.
TEXT ·stream(SB), NOSPLIT, $0-24
	MOVQ dst+0(FP), DI
	MOVQ src+8(FP), SI
	MOVQ lines+16(FP), CX
	SHRQ $1, CX
	JCC two
	VMOVDQU (SI), Y0
	VMOVDQU 32(SI), Y1
	VMOVNTDQ Y0, (DI)
	VMOVNTDQ Y1, 32(DI)
	ADDQ $64, SI
	ADDQ $64, DI
two:
	TESTQ CX, CX
	JZ out
turn:
	VMOVDQU (SI), Y0
	VMOVDQU 32(SI), Y1
	VMOVDQU 64(SI), Y2
	VMOVDQU 96(SI), Y3
	VMOVNTDQ Y0, (DI)
	VMOVNTDQ Y1, 32(DI)
	VMOVNTDQ Y2, 64(DI)
	VMOVNTDQ Y3, 96(DI)
	ADDQ $128, SI
	ADDQ $128, DI
	DECQ CX
	JNZ turn
out:
	VZEROUPPER
	SFENCE
	RET
