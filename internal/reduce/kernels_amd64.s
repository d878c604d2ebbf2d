#include "textflag.h"

// A kernel combines a with b, blocks times 128 bytes of each, into dst. A step does it for the 32 bytes in Y0–Y3 and
// those at M: OP(M, A) is A = A ∘ M. It may use Y8–Y14; Y15 is what the kernel was set up with. What comes
// from beyond L2 is asked for 16 steps ahead: the CPU by itself does not keep two streams and the stores going.
#define KERNEL(OP) \
	MOVQ dst+0(FP), DI \
	MOVQ a+8(FP), SI \
	MOVQ b+16(FP), DX \
	MOVQ blocks+24(FP), CX \
loop: \
	PREFETCHT0 2048(SI) \
	PREFETCHT0 2112(SI) \
	PREFETCHT0 2048(DX) \
	PREFETCHT0 2112(DX) \
	VMOVDQU (SI), Y0 \
	VMOVDQU 32(SI), Y1 \
	VMOVDQU 64(SI), Y2 \
	VMOVDQU 96(SI), Y3 \
	OP((DX), Y0) \
	OP(32(DX), Y1) \
	OP(64(DX), Y2) \
	OP(96(DX), Y3) \
	VMOVDQU Y0, (DI) \
	VMOVDQU Y1, 32(DI) \
	VMOVDQU Y2, 64(DI) \
	VMOVDQU Y3, 96(DI) \
	ADDQ $128, SI \
	ADDQ $128, DX \
	ADDQ $128, DI \
	DECQ CX \
	JNZ loop \
	VZEROUPPER \
	RET

// One instruction.
#define VPADDB_(M, A) VPADDB M, A, A
#define VPADDW_(M, A) VPADDW M, A, A
#define VPADDD_(M, A) VPADDD M, A, A
#define VPADDQ_(M, A) VPADDQ M, A, A
#define VADDPS_(M, A) VADDPS M, A, A
#define VADDPD_(M, A) VADDPD M, A, A
#define VPMULLW_(M, A) VPMULLW M, A, A
#define VPMULLD_(M, A) VPMULLD M, A, A
#define VMULPS_(M, A) VMULPS M, A, A
#define VMULPD_(M, A) VMULPD M, A, A
#define VPMINSB_(M, A) VPMINSB M, A, A
#define VPMINSW_(M, A) VPMINSW M, A, A
#define VPMINSD_(M, A) VPMINSD M, A, A
#define VPMINUB_(M, A) VPMINUB M, A, A
#define VPMINUW_(M, A) VPMINUW M, A, A
#define VPMINUD_(M, A) VPMINUD M, A, A
#define VPMAXSB_(M, A) VPMAXSB M, A, A
#define VPMAXSW_(M, A) VPMAXSW M, A, A
#define VPMAXSD_(M, A) VPMAXSD M, A, A
#define VPMAXUB_(M, A) VPMAXUB M, A, A
#define VPMAXUW_(M, A) VPMAXUW M, A, A
#define VPMAXUD_(M, A) VPMAXUD M, A, A
#define VPAND_(M, A) VPAND M, A, A
#define VPOR_(M, A) VPOR M, A, A
#define VPXOR_(M, A) VPXOR M, A, A

// VMINPD gives its last source if one is a NaN or both are 0. Both orders, or-ed, give a NaN and −0 then, and else what
// both are. For the maximum they are and-ed, which loses the NaN: VCMPPD $3 gives ones, a NaN, where there is one.
#define MIN_F32(M, A) \
	VMOVDQU M, Y8 \
	VMINPS Y8, A, Y9 \
	VMINPS A, Y8, Y10 \
	VPOR Y9, Y10, A
#define MAX_F32(M, A) \
	VMOVDQU M, Y8 \
	VMAXPS Y8, A, Y9 \
	VMAXPS A, Y8, Y10 \
	VCMPPS $3, Y8, A, Y11 \
	VPAND Y9, Y10, A \
	VPOR Y11, A, A
#define MIN_F64(M, A) \
	VMOVDQU M, Y8 \
	VMINPD Y8, A, Y9 \
	VMINPD A, Y8, Y10 \
	VPOR Y9, Y10, A
#define MAX_F64(M, A) \
	VMOVDQU M, Y8 \
	VMAXPD Y8, A, Y9 \
	VMAXPD A, Y8, Y10 \
	VCMPPD $3, Y8, A, Y11 \
	VPAND Y9, Y10, A \
	VPOR Y11, A, A

// A comparison of signed integers chooses. Unsigned ones are compared with their highest bits turned.
#define SIGN_BITS \
	VPCMPEQQ Y15, Y15, Y15 \
	VPSLLQ $63, Y15, Y15
#define MIN_I64(M, A) \
	VMOVDQU M, Y8 \
	VPCMPGTQ Y8, A, Y9 \
	VBLENDVPD Y9, Y8, A, A
#define MAX_I64(M, A) \
	VMOVDQU M, Y8 \
	VPCMPGTQ Y8, A, Y9 \
	VBLENDVPD Y9, A, Y8, A
#define MIN_U64(M, A) \
	VMOVDQU M, Y8 \
	VPXOR Y15, Y8, Y9 \
	VPXOR Y15, A, Y10 \
	VPCMPGTQ Y9, Y10, Y9 \
	VBLENDVPD Y9, Y8, A, A
#define MAX_U64(M, A) \
	VMOVDQU M, Y8 \
	VPXOR Y15, Y8, Y9 \
	VPXOR Y15, A, Y10 \
	VPCMPGTQ Y9, Y10, Y9 \
	VBLENDVPD Y9, A, Y8, A

// Y15 is 1 in each element and Y14 is 0. What is 0 becomes ones, what is false, and is taken from the 1.
#define ONES_B \
	VPCMPEQQ Y15, Y15, Y15 \
	VPABSB Y15, Y15 \
	VPXOR Y14, Y14, Y14
#define ONES_W \
	VPCMPEQQ Y15, Y15, Y15 \
	VPABSW Y15, Y15 \
	VPXOR Y14, Y14, Y14
#define ONES_D \
	VPCMPEQQ Y15, Y15, Y15 \
	VPABSD Y15, Y15 \
	VPXOR Y14, Y14, Y14
#define ONES_Q \
	VPCMPEQQ Y15, Y15, Y15 \
	VPSRLQ $63, Y15, Y15 \
	VPXOR Y14, Y14, Y14
#define LAND_B(M, A) \
	VPCMPEQB M, Y14, Y8 \
	VPCMPEQB A, Y14, Y9 \
	VPOR Y8, Y9, A \
	VPANDN Y15, A, A
#define LOR_B(M, A) \
	VPOR M, A, A \
	VPCMPEQB A, Y14, A \
	VPANDN Y15, A, A
#define LXOR_B(M, A) \
	VPCMPEQB M, Y14, Y8 \
	VPCMPEQB A, Y14, Y9 \
	VPXOR Y8, Y9, A \
	VPAND Y15, A, A
#define LAND_W(M, A) \
	VPCMPEQW M, Y14, Y8 \
	VPCMPEQW A, Y14, Y9 \
	VPOR Y8, Y9, A \
	VPANDN Y15, A, A
#define LOR_W(M, A) \
	VPOR M, A, A \
	VPCMPEQW A, Y14, A \
	VPANDN Y15, A, A
#define LXOR_W(M, A) \
	VPCMPEQW M, Y14, Y8 \
	VPCMPEQW A, Y14, Y9 \
	VPXOR Y8, Y9, A \
	VPAND Y15, A, A
#define LAND_D(M, A) \
	VPCMPEQD M, Y14, Y8 \
	VPCMPEQD A, Y14, Y9 \
	VPOR Y8, Y9, A \
	VPANDN Y15, A, A
#define LOR_D(M, A) \
	VPOR M, A, A \
	VPCMPEQD A, Y14, A \
	VPANDN Y15, A, A
#define LXOR_D(M, A) \
	VPCMPEQD M, Y14, Y8 \
	VPCMPEQD A, Y14, Y9 \
	VPXOR Y8, Y9, A \
	VPAND Y15, A, A
#define LAND_Q(M, A) \
	VPCMPEQQ M, Y14, Y8 \
	VPCMPEQQ A, Y14, Y9 \
	VPOR Y8, Y9, A \
	VPANDN Y15, A, A
#define LOR_Q(M, A) \
	VPOR M, A, A \
	VPCMPEQQ A, Y14, A \
	VPANDN Y15, A, A
#define LXOR_Q(M, A) \
	VPCMPEQQ M, Y14, Y8 \
	VPCMPEQQ A, Y14, Y9 \
	VPXOR Y8, Y9, A \
	VPAND Y15, A, A

// func sumI8(dst, a, b unsafe.Pointer, blocks int)
TEXT ·sumI8(SB), NOSPLIT, $0-32
	KERNEL(VPADDB_)

// func sumI16(dst, a, b unsafe.Pointer, blocks int)
TEXT ·sumI16(SB), NOSPLIT, $0-32
	KERNEL(VPADDW_)

// func sumI32(dst, a, b unsafe.Pointer, blocks int)
TEXT ·sumI32(SB), NOSPLIT, $0-32
	KERNEL(VPADDD_)

// func sumI64(dst, a, b unsafe.Pointer, blocks int)
TEXT ·sumI64(SB), NOSPLIT, $0-32
	KERNEL(VPADDQ_)

// func sumF32(dst, a, b unsafe.Pointer, blocks int)
TEXT ·sumF32(SB), NOSPLIT, $0-32
	KERNEL(VADDPS_)

// func sumF64(dst, a, b unsafe.Pointer, blocks int)
TEXT ·sumF64(SB), NOSPLIT, $0-32
	KERNEL(VADDPD_)

// func prodI16(dst, a, b unsafe.Pointer, blocks int)
TEXT ·prodI16(SB), NOSPLIT, $0-32
	KERNEL(VPMULLW_)

// func prodI32(dst, a, b unsafe.Pointer, blocks int)
TEXT ·prodI32(SB), NOSPLIT, $0-32
	KERNEL(VPMULLD_)

// func prodF32(dst, a, b unsafe.Pointer, blocks int)
TEXT ·prodF32(SB), NOSPLIT, $0-32
	KERNEL(VMULPS_)

// func prodF64(dst, a, b unsafe.Pointer, blocks int)
TEXT ·prodF64(SB), NOSPLIT, $0-32
	KERNEL(VMULPD_)

// func minI8(dst, a, b unsafe.Pointer, blocks int)
TEXT ·minI8(SB), NOSPLIT, $0-32
	KERNEL(VPMINSB_)

// func minI16(dst, a, b unsafe.Pointer, blocks int)
TEXT ·minI16(SB), NOSPLIT, $0-32
	KERNEL(VPMINSW_)

// func minI32(dst, a, b unsafe.Pointer, blocks int)
TEXT ·minI32(SB), NOSPLIT, $0-32
	KERNEL(VPMINSD_)

// func minU8(dst, a, b unsafe.Pointer, blocks int)
TEXT ·minU8(SB), NOSPLIT, $0-32
	KERNEL(VPMINUB_)

// func minU16(dst, a, b unsafe.Pointer, blocks int)
TEXT ·minU16(SB), NOSPLIT, $0-32
	KERNEL(VPMINUW_)

// func minU32(dst, a, b unsafe.Pointer, blocks int)
TEXT ·minU32(SB), NOSPLIT, $0-32
	KERNEL(VPMINUD_)

// func minI64(dst, a, b unsafe.Pointer, blocks int)
TEXT ·minI64(SB), NOSPLIT, $0-32
	KERNEL(MIN_I64)

// func minU64(dst, a, b unsafe.Pointer, blocks int)
TEXT ·minU64(SB), NOSPLIT, $0-32
	SIGN_BITS
	KERNEL(MIN_U64)

// func minF32(dst, a, b unsafe.Pointer, blocks int)
TEXT ·minF32(SB), NOSPLIT, $0-32
	KERNEL(MIN_F32)

// func minF64(dst, a, b unsafe.Pointer, blocks int)
TEXT ·minF64(SB), NOSPLIT, $0-32
	KERNEL(MIN_F64)

// func maxI8(dst, a, b unsafe.Pointer, blocks int)
TEXT ·maxI8(SB), NOSPLIT, $0-32
	KERNEL(VPMAXSB_)

// func maxI16(dst, a, b unsafe.Pointer, blocks int)
TEXT ·maxI16(SB), NOSPLIT, $0-32
	KERNEL(VPMAXSW_)

// func maxI32(dst, a, b unsafe.Pointer, blocks int)
TEXT ·maxI32(SB), NOSPLIT, $0-32
	KERNEL(VPMAXSD_)

// func maxU8(dst, a, b unsafe.Pointer, blocks int)
TEXT ·maxU8(SB), NOSPLIT, $0-32
	KERNEL(VPMAXUB_)

// func maxU16(dst, a, b unsafe.Pointer, blocks int)
TEXT ·maxU16(SB), NOSPLIT, $0-32
	KERNEL(VPMAXUW_)

// func maxU32(dst, a, b unsafe.Pointer, blocks int)
TEXT ·maxU32(SB), NOSPLIT, $0-32
	KERNEL(VPMAXUD_)

// func maxI64(dst, a, b unsafe.Pointer, blocks int)
TEXT ·maxI64(SB), NOSPLIT, $0-32
	KERNEL(MAX_I64)

// func maxU64(dst, a, b unsafe.Pointer, blocks int)
TEXT ·maxU64(SB), NOSPLIT, $0-32
	SIGN_BITS
	KERNEL(MAX_U64)

// func maxF32(dst, a, b unsafe.Pointer, blocks int)
TEXT ·maxF32(SB), NOSPLIT, $0-32
	KERNEL(MAX_F32)

// func maxF64(dst, a, b unsafe.Pointer, blocks int)
TEXT ·maxF64(SB), NOSPLIT, $0-32
	KERNEL(MAX_F64)

// func bitAnd(dst, a, b unsafe.Pointer, blocks int)
TEXT ·bitAnd(SB), NOSPLIT, $0-32
	KERNEL(VPAND_)

// func bitOr(dst, a, b unsafe.Pointer, blocks int)
TEXT ·bitOr(SB), NOSPLIT, $0-32
	KERNEL(VPOR_)

// func bitXor(dst, a, b unsafe.Pointer, blocks int)
TEXT ·bitXor(SB), NOSPLIT, $0-32
	KERNEL(VPXOR_)

// func logicalAnd8(dst, a, b unsafe.Pointer, blocks int)
TEXT ·logicalAnd8(SB), NOSPLIT, $0-32
	ONES_B
	KERNEL(LAND_B)

// func logicalAnd16(dst, a, b unsafe.Pointer, blocks int)
TEXT ·logicalAnd16(SB), NOSPLIT, $0-32
	ONES_W
	KERNEL(LAND_W)

// func logicalAnd32(dst, a, b unsafe.Pointer, blocks int)
TEXT ·logicalAnd32(SB), NOSPLIT, $0-32
	ONES_D
	KERNEL(LAND_D)

// func logicalAnd64(dst, a, b unsafe.Pointer, blocks int)
TEXT ·logicalAnd64(SB), NOSPLIT, $0-32
	ONES_Q
	KERNEL(LAND_Q)

// func logicalOr8(dst, a, b unsafe.Pointer, blocks int)
TEXT ·logicalOr8(SB), NOSPLIT, $0-32
	ONES_B
	KERNEL(LOR_B)

// func logicalOr16(dst, a, b unsafe.Pointer, blocks int)
TEXT ·logicalOr16(SB), NOSPLIT, $0-32
	ONES_W
	KERNEL(LOR_W)

// func logicalOr32(dst, a, b unsafe.Pointer, blocks int)
TEXT ·logicalOr32(SB), NOSPLIT, $0-32
	ONES_D
	KERNEL(LOR_D)

// func logicalOr64(dst, a, b unsafe.Pointer, blocks int)
TEXT ·logicalOr64(SB), NOSPLIT, $0-32
	ONES_Q
	KERNEL(LOR_Q)

// func logicalXor8(dst, a, b unsafe.Pointer, blocks int)
TEXT ·logicalXor8(SB), NOSPLIT, $0-32
	ONES_B
	KERNEL(LXOR_B)

// func logicalXor16(dst, a, b unsafe.Pointer, blocks int)
TEXT ·logicalXor16(SB), NOSPLIT, $0-32
	ONES_W
	KERNEL(LXOR_W)

// func logicalXor32(dst, a, b unsafe.Pointer, blocks int)
TEXT ·logicalXor32(SB), NOSPLIT, $0-32
	ONES_D
	KERNEL(LXOR_D)

// func logicalXor64(dst, a, b unsafe.Pointer, blocks int)
TEXT ·logicalXor64(SB), NOSPLIT, $0-32
	ONES_Q
	KERNEL(LXOR_Q)
