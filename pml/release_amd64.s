//go:build !race

#include "textflag.h"
#include "go_asm.h"

// func release(l *engineLock)
TEXT ·release(SB), NOSPLIT, $0-8
	MOVQ l+0(FP), AX
	CMPQ engineLock_wanted(AX), $0
	JNE wanted
	MOVL $0, engineLock_held(AX)
	RET
wanted:
	JMP ·releaseWanted(SB)
