#include "textflag.h"

// func callers(pcs *[callersDeep]uintptr)
TEXT ·callers(SB), NOSPLIT|NOFRAME, $0-8
	MOVQ pcs+0(FP), DI
	MOVQ BP, AX
	XORQ CX, CX

next:
	TESTQ AX, AX
	JZ    done
	CMPQ  CX, $11
	JGE   done
	MOVQ  8(AX), DX
	MOVQ  DX, (DI)(CX*8)
	MOVQ  (AX), AX
	INCQ  CX
	JMP   next

done:
	RET
