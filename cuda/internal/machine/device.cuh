// The machine under kernels that work with matrix fragments: types, shared memory, matrix fragments
// and shuffles. Tests replace this file by one in which a C++ compiler finds the same
// functions, with fibers for threads.
//
// Fragments are those of mma.m16n8k16: with g = lane/4 and c = lane%4, the left
// operand a holds rows g, g+8, g, g+8 of depths 2c, 2c, 2c+8, 2c+8 (two each), the
// right operand b columns g of depths 2c and 2c+8, the sum columns 2c and 2c+1 of rows
// g (0, 1) and g+8 (2, 3).
typedef unsigned u32;
typedef unsigned short u16;
typedef long long i64;

#define FN static __device__ __forceinline__
#define FN_MEMBER __device__ __forceinline__
#define KERNEL(threads, blocks) extern "C" __global__ void __launch_bounds__(threads, blocks)

struct __align__(16) quad {
	u32 x[4];
};
struct floats {
	float x[4];
};

extern __shared__ __align__(1024) char shared_bytes[];

FN float inf() { return __int_as_float(0x7f800000); }

// Addresses in shared memory count bytes from its start.
FN u32 shared_at(u32 offset) { return (u32)__cvta_generic_to_shared(shared_bytes) + offset; }

FN void sync_block() { __syncthreads(); }
FN void sync_warp() { __syncwarp(); }
FN float shuffle(float x, int mask) { return __shfl_xor_sync(0xffffffffu, x, mask); }
FN double shuffle(double x, int mask) { return __shfl_xor_sync(0xffffffffu, x, mask); }
FN float from_lane(float x, int lane) { return __shfl_sync(0xffffffffu, x, lane); }
FN double from_lane(double x, int lane) { return __shfl_sync(0xffffffffu, x, lane); }
FN int from_lane(int x, int lane) { return __shfl_sync(0xffffffffu, x, lane); }
FN bool any(bool p) { return __any_sync(0xffffffffu, p); }

// 2^x, a few units in the last place off.
FN float exp2_fast(float x)
{
	float y;
	asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
	return y;
}

// 1/x, a unit in the last place off.
FN float reciprocal(float x)
{
	float y;
	asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
	return y;
}

// Half precision is bfloat16 with BF16, else float16.
FN u32 pack(float lo, float hi)
{
	u32 w;
#if BF16
	asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(w) : "f"(hi), "f"(lo));
#else
	asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(w) : "f"(hi), "f"(lo));
#endif
	return w;
}

FN float bf16_value(u16 h) { return __uint_as_float((u32)h << 16); }
FN float f16_value(u16 h)
{
	float x;
	asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(h));
	return x;
}
FN u16 bf16_bits(float x)
{
	u16 h;
	asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(h) : "f"(x));
	return h;
}
FN u16 f16_bits(float x)
{
	u16 h;
	asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(x));
	return h;
}
#if BF16
FN float half_value(u16 h) { return bf16_value(h); }
#else
FN float half_value(u16 h) { return f16_value(h); }
#endif
FN float low(u32 w) { return half_value((u16)w); }
FN float high(u32 w) { return half_value((u16)(w >> 16)); }

// The low and the high halves of two words as one word each.
FN u32 lows(u32 a, u32 b) { return __byte_perm(a, b, 0x5410); }
FN u32 highs(u32 a, u32 b) { return __byte_perm(a, b, 0x7632); }

FN void mma(float *c, const u32 *a, const u32 *b)
{
#if BF16
	asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
	    : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
	    : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#else
	asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
	    : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
	    : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#endif
}

// Four matrices of 8 by 8 halves: lane l gives the address of row l%8 of matrix l/8,
// and gets elements 2c and 2c+1 of row g of each; transposed, of column g.
FN void load_matrices(u32 *r, u32 at)
{
	asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
		     : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(at) : "memory");
}
FN void load_transposed(u32 *r, u32 at)
{
	asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
		     : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(at) : "memory");
}

// 16 bytes to shared memory, zeros unless there.
FN void copy_async(u32 to, const void *from, bool there)
{
	asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(there ? 16 : 0) : "memory");
}
FN void copies_end() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int N> FN void copies_wait() { asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory"); }

FN void store_word(u32 at, u32 v) { asm volatile("st.shared.b32 [%0], %1;" ::"r"(at), "r"(v) : "memory"); }
FN u32 load_word(u32 at)
{
	u32 v;
	asm volatile("ld.shared.b32 %0, [%1];" : "=r"(v) : "r"(at) : "memory");
	return v;
}
FN void store_float(u32 at, float v) { store_word(at, __float_as_uint(v)); }
FN float load_float(u32 at) { return __uint_as_float(load_word(at)); }
FN quad load_quad(u32 at)
{
	quad v;
	asm volatile("ld.shared.v4.b32 {%0,%1,%2,%3}, [%4];" : "=r"(v.x[0]), "=r"(v.x[1]), "=r"(v.x[2]), "=r"(v.x[3]) : "r"(at) : "memory");
	return v;
}
FN floats load_floats(u32 at)
{
	floats v;
	asm volatile("ld.shared.v4.f32 {%0,%1,%2,%3}, [%4];" : "=f"(v.x[0]), "=f"(v.x[1]), "=f"(v.x[2]), "=f"(v.x[3]) : "r"(at) : "memory");
	return v;
}
FN void store_floats(u32 at, float x0, float x1, float x2, float x3)
{
	asm volatile("st.shared.v4.f32 [%0], {%1,%2,%3,%4};" ::"r"(at), "f"(x0), "f"(x1), "f"(x2), "f"(x3) : "memory");
}

// Waits until the kernel in front has ended and what it wrote is seen. After that a
// kernel that was launched early is like any other; for one that was not it does
// nothing.
FN void front_ended()
{
#if __CUDA_ARCH__ >= 900
	asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
