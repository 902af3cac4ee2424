package cudagen_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/seed-ee968945/concert/internal/golden/gen"
	"github.com/seed-ee968945/concert/ir"
	"github.com/seed-ee968945/concert/lower/cudagen"
)

// sizedCases are single operations and elementwise regions of sizes that are known at
// run time only. Symbols are at most 37; positive says that an empty range has no value.
var sizedCases = []struct {
	name, text string
	positive   bool
}{
	{name: "silu", text: `(%x: bf16[a+b,16]) -> (bf16[a+b,16]) { %y = silu %x : bf16[a+b,16]; return %y }`},
	{name: "silu_odd", text: `(%x: bf16[a,3]) -> (bf16[a,3]) { %y = silu %x : bf16[a,3]; return %y }`},
	{name: "swiglu", text: `(%x: bf16[a,24], %z: bf16[a,24]) -> (bf16[a,24], f32[a,24]) { %y = silu %x : bf16[a,24]; %w = mul %y, %z : bf16[a,24]; %v = convert %w : f32[a,24]; return %w, %v }`},
	{name: "through_views", text: `(%x: f32[a,8]) -> (f32[a*8]) { %y = exp %x : f32[a,8]; %w = view %y : f32[a*8]; %v = add %w, %w : f32[a*8]; return %v }`},
	{name: "row_scale", text: `(%x: bf16[a,24], %w: f32[a,1]) -> (bf16[a,24]) { %y = mul %x, %w : bf16[a,24]; return %y }`},
	{name: "bias", text: `(%x: bf16[a,b], %w: bf16[b]) -> (bf16[a,b]) { %y = add %x, %w : bf16[a,b]; return %y }`},
	{name: "channels", text: `(%x: bf16[a,16,b], %w: f32[1,16,1]) -> (f32[a,16,b]) { %y = sub %x, %w : f32[a,16,b]; return %y }`},
	{name: "gather_between", text: `(%x: f32[17,4,37], %i: i64[a,4,b]) -> (f32[a,4,b]) { %y = gather %x, %i {dim=0} : f32[a,4,b]; return %y }`},
	{name: "index_between", text: `(%x: f32[5,9,3], %i: i64[a,b]) -> (f32[5,a,b,3]) { %y = index %x, %i {dims=[1]} : f32[5,a,b,3]; return %y }`},
	{name: "outer", text: `(%x: f32[a,1], %w: f32[1,b]) -> (f32[a,b]) { %y = mul %x, %w : f32[a,b]; return %y }`},
	{name: "masks", text: `(%c: bool[a,5], %x: f16[a,5], %z: f16[]) -> (f16[a,5]) { %y = where %c, %x, %z : f16[a,5]; return %y }`},
	{name: "rmsnorm", text: `(%x: bf16[a,24], %w: bf16[24]) -> (bf16[a,24], f32[a,1]) { %f = convert %x : f32[a,24]; %q = mul %f, %f : f32[a,24]; %m = mean %q {dims=[1], keepdim=true} : f32[a,1]; %e = add %m {scalar=0.00001} : f32[a,1]; %r = rsqrt %e : f32[a,1]; %n = mul %f, %r : f32[a,24]; %b = convert %n : bf16[a,24]; %y = mul %b, %w : bf16[a,24]; return %y, %r }`},
	{name: "softmax_region", text: `(%x: bf16[a,12]) -> (f32[a,12], f32[a]) { %f = convert %x : f32[a,12]; %p = softmax %f {dim=1} : f32[a,12]; %m = amax %p {dims=[1]} : f32[a]; return %p, %m }`},
	{name: "long_softmax", text: `(%x: f32[a,1300]) -> (f32[a,1300]) { %p = softmax %x {dim=1} : f32[a,1300]; return %p }`},
	{name: "picked", text: `(%x: bf16[9,24], %i: i64[a], %w: f32[a,1]) -> (f32[a,24]) { %r = index %x, %i {dims=[0]} : bf16[a,24]; %f = convert %r : f32[a,24]; %y = mul %f, %w : f32[a,24]; return %y }`},
	{name: "picked_short", text: `(%x: f32[9], %i: i64[a]) -> (f32[a]) { %y = index %x, %i {dims=[0]} : f32[a]; return %y }`},
	{name: "nll", text: `(%x: f32[a,12], %i: i64[a,1]) -> (f32[a,1]) { %l = log_softmax %x {dim=1} : f32[a,12]; %g = gather %l, %i {dim=1} : f32[a,1]; %y = neg %g : f32[a,1]; return %y }`},
	{name: "halves", text: `(%x: bf16[a,2,8], %z: bf16[a,2,8]) -> (bf16[a,2,16]) { %n = neg %x : bf16[a,2,8]; %y = cat %n, %z {dim=2} : bf16[a,2,16]; return %y }`},
	{name: "one_hot", text: `(%i: i64[a,2]) -> (f32[a,8]) { %z = full {value=0.0} : f32[a,8]; %y = scatter %z, %i {dim=1, value=1.0} : f32[a,8]; return %y }`},
	{name: "views_of_rows", text: `(%x: bf16[a,4,6], %w: bf16[24]) -> (bf16[a,24]) { %y = exp %x : bf16[a,4,6]; %v = view %y : bf16[a,24]; %z = mul %v, %w : bf16[a,24]; return %z }`},
	{name: "full", text: `() -> (bf16[a,7]) { %y = full {value=1.5} : bf16[a,7]; return %y }`},
	{name: "iota", text: `() -> (i64[a+1]) { %y = iota {start=3, step=2} : i64[a+1]; return %y }`},
	{name: "clone", text: `(%x: i32[a,b,2]) -> (i32[a,b,2]) { %y = clone %x : i32[a,b,2]; return %y }`},
	{name: "sum_rows", text: `(%x: bf16[a,24]) -> (bf16[a]) { %y = sum %x {dims=[1]} : bf16[a]; return %y }`},
	{name: "sum_columns", text: `(%x: bf16[a,24]) -> (f32[24]) { %y = sum %x {dims=[0]} : f32[24]; return %y }`},
	{name: "sum_all", text: `(%x: f32[a,b]) -> (f32[]) { %y = sum %x : f32[]; return %y }`},
	{name: "sum_middle", text: `(%x: f32[a,b,6]) -> (f32[a,1,6]) { %y = sum %x {dims=[1], keepdim=true} : f32[a,1,6]; return %y }`},
	{name: "sum_outer_two", text: `(%x: f32[a,b,6]) -> (f32[6]) { %y = sum %x {dims=[0, 1]} : f32[6]; return %y }`},
	{name: "mean", text: `(%x: f32[a,b]) -> (f32[a,1]) { %y = mean %x {dims=[1], keepdim=true} : f32[a,1]; return %y }`},
	{name: "mean_columns", text: `(%x: bf16[b,a]) -> (f32[a]) { %y = mean %x {dims=[0]} : f32[a]; return %y }`},
	{name: "prod", text: `(%x: i64[a,3]) -> (i64[a]) { %y = prod %x {dims=[1]} : i64[a]; return %y }`},
	{name: "amax", text: `(%x: bf16[a,b]) -> (bf16[a,1]) { %y = amax %x {dims=[1], keepdim=true} : bf16[a,1]; return %y }`},
	{name: "amin", text: `(%x: f16[a,b]) -> (f16[b]) { %y = amin %x {dims=[0]} : f16[b]; return %y }`},
	{name: "amax_i8", text: `(%x: i8[a,b]) -> (i8[a]) { %y = amax %x {dims=[1]} : i8[a]; return %y }`},
	{name: "amin_f8", text: `(%x: f8e4m3fn[a,b]) -> (f8e4m3fn[a]) { %y = amin %x {dims=[1]} : f8e4m3fn[a]; return %y }`},
	{name: "amin_u16", text: `(%x: u16[a,b]) -> (u16[b]) { %y = amin %x {dims=[0]} : u16[b]; return %y }`},
	{name: "amin_bool", text: `(%x: bool[a,b]) -> (bool[a]) { %y = amin %x {dims=[1]} : bool[a]; return %y }`},
	{name: "argmax", text: `(%x: f32[a,b]) -> (i64[a]) { %y = argmax %x {dim=1} : i64[a]; return %y }`, positive: true},
	{name: "argmax_outer", text: `(%x: f32[a,b]) -> (i64[b]) { %y = argmax %x {dim=0} : i64[b]; return %y }`, positive: true},
	{name: "cumsum", text: `(%x: i64[a,b]) -> (i64[a,b]) { %y = cumsum %x {dim=0} : i64[a,b]; return %y }`},
	{name: "heads", text: `(%x: f32[a,4,16,8:1536,8,96,1]) -> (f32[a,4,16,8]) { %y = clone %x : f32[a,4,16,8]; return %y }`},
	{name: "strided_rows", text: `(%x: f32[a,12,5:64,1,12], %z: bf16[5:2]) -> (f32[a,12,5]) { %w = convert %z : f32[5]; %y = add %x, %w : f32[a,12,5]; return %y }`},
	{name: "strided_sum", text: `(%x: f32[a,12:40,2]) -> (f32[a]) { %e = exp %x : f32[a,12:40,2]; %y = sum %e {dims=[1]} : f32[a]; return %y }`},
	{name: "strided_result", text: `(%x: bf16[a,4,3:12,1,4], %z: bf16[a,4,3]) -> (bf16[a,4,3:12,1,4]) { %y = mul %x, %z : bf16[a,4,3:12,1,4]; return %y }`},
	{name: "same_row", text: `(%x: f32[a,16:0,1], %z: f32[a,16]) -> (f32[a,16]) { %y = mul %x, %z : f32[a,16]; return %y }`},
	{name: "column", text: `(%x: f32[a:7]) -> (f32[a]) { %y = exp %x : f32[a]; return %y }`},
	{name: "strided_index", text: `(%x: bf16[19,32:40,1], %i: i64[a:3]) -> (bf16[a,32]) { %y = index %x, %i {dims=[0]} : bf16[a,32]; return %y }`},
	{name: "strided_scan", text: `(%x: bf16[a,30:1,37]) -> (bf16[a,30]) { %y = cumsum %x {dim=1} : bf16[a,30]; return %y }`},
	{name: "strided_put", text: `(%x: f32[40,6:8,1], %z: f32[a,6:1,64], %i: i64[a:2]) -> (f32[40,6]) { %y = index_put %x, %z, %i {dims=[0]} : f32[40,6]; return %y }`},
	{name: "cumsum_of_one", text: `(%x: f64[d]) -> (f64[d]) { %y = cumsum %x {dim=0} : f64[d]; return %y }`},
	{name: "window_of_none", text: `(%x: u64[], %i: u64[]) -> (u64[]) { %y = reduce_window %x, %i {reduce="product", window=[]} : u64[]; return %y }`},
	{name: "cumsum_rows", text: `(%x: f32[a,b]) -> (f32[a,b]) { %y = cumsum %x {dim=1} : f32[a,b]; return %y }`},
	{name: "softmax", text: `(%x: bf16[a,b]) -> (bf16[a,b]) { %y = softmax %x {dim=1} : bf16[a,b]; return %y }`},
	{name: "softmax_outer", text: `(%x: f32[a,b,3]) -> (f32[a,b,3]) { %y = softmax %x {dim=0} : f32[a,b,3]; return %y }`},
	{name: "log_softmax", text: `(%x: f32[a,12]) -> (f32[a,12]) { %y = log_softmax %x {dim=1} : f32[a,12]; return %y }`},
	{name: "cat", text: `(%x: bf16[a,16], %z: bf16[b,16], %w: bf16[3,16]) -> (bf16[a+b+3,16]) { %y = cat %x, %z, %w {dim=0} : bf16[a+b+3,16]; return %y }`},
	{name: "cat_columns", text: `(%x: f32[a,5], %z: f32[a,b]) -> (f32[a,b+5]) { %y = cat %x, %z {dim=1} : f32[a,b+5]; return %y }`},
	{name: "slice_scatter", text: `(%x: bf16[a+4,16], %z: bf16[4,16]) -> (bf16[a+4,16]) { %y = slice_scatter %x, %z {dim=0, start=0, end=4} : bf16[a+4,16]; return %y }`},
	{name: "slice_scatter_columns", text: `(%x: i32[a,9], %z: i32[a,3]) -> (i32[a,9]) { %y = slice_scatter %x, %z {dim=1, start=2, end=8, step=2} : i32[a,9]; return %y }`},
	{name: "gather", text: `(%x: f32[a,9], %i: i64[a,2]) -> (f32[a,2]) { %y = gather %x, %i {dim=1} : f32[a,2]; return %y }`},
	{name: "gather_rows", text: `(%x: bf16[17,8], %i: i64[a,8]) -> (bf16[a,8]) { %y = gather %x, %i {dim=0} : bf16[a,8]; return %y }`},
	{name: "index_rows", text: `(%x: bf16[19,32], %i: i64[a]) -> (bf16[a,32]) { %y = index %x, %i {dims=[0]} : bf16[a,32]; return %y }`},
	{name: "index_two", text: `(%x: f32[19,7,3], %i: i64[a], %j: i64[a]) -> (f32[a,3]) { %y = index %x, %i, %j {dims=[0, 1]} : f32[a,3]; return %y }`},
	{name: "index_apart", text: `(%x: f32[5,b,6], %i: i32[a,1], %j: i64[a,2]) -> (f32[a,2,b]) { %y = index %x, %i, %j {dims=[0, 2]} : f32[a,2,b]; return %y }`},
	{name: "embedding", text: `(%x: bf16[40,24], %i: i64[a,2]) -> (bf16[a,2,24]) { %y = embedding %x, %i : bf16[a,2,24]; return %y }`},
	{name: "index_add", text: `(%x: f32[13,24], %i: i64[a], %z: f32[a,24]) -> (f32[13,24]) { %y = index_add %x, %i, %z {dim=0} : f32[13,24]; return %y }`},
	{name: "combine", text: `(%x: bf16[13,24], %i: i64[a], %z: bf16[a,24], %w: f32[a,1]) -> (bf16[13,24], f32[13,24]) { %o = full {value=0.5} : f32[13,24]; %f = convert %z : f32[a,24]; %v = mul %f, %w : f32[a,24]; %s = index_add %o, %i, %v {dim=0} : f32[13,24]; %b = convert %s : bf16[13,24]; %y = add %x, %b : bf16[13,24]; return %y, %s }`},
	{name: "replace_rows", text: `(%x: f32[a+40,6], %z: f32[b,6], %i: i64[b]) -> (f32[a+40,6]) { %e = exp %x : f32[a+40,6]; %n = neg %z : f32[b,6]; %s = index_put %e, %n, %i {dims=[0]} : f32[a+40,6]; %y = mul %s, %x : f32[a+40,6]; return %y }`},
	{name: "index_add_many", text: `(%x: f32[12,3], %i: i64[300*a], %z: f32[300*a,3]) -> (f32[12,3]) { %y = index_add %x, %i, %z {dim=0} : f32[12,3]; return %y }`},
	{name: "index_add_wide", text: `(%x: bf16[1100,40], %i: i64[a], %z: bf16[a,40]) -> (bf16[1100,40]) { %y = index_add %x, %i, %z {dim=0} : bf16[1100,40]; return %y }`},
	{name: "index_add_bf16", text: `(%x: bf16[a+1,20], %i: i64[b], %z: bf16[b,20]) -> (bf16[a+1,20]) { %y = index_add %x, %i, %z {dim=0, alpha=2.0} : bf16[a+1,20]; return %y }`},
	{name: "index_add_columns", text: `(%x: f32[a,13], %i: i64[b], %z: f32[a,b]) -> (f32[a,13]) { %y = index_add %x, %i, %z {dim=1} : f32[a,13]; return %y }`},
	{name: "count", text: `(%x: i64[8], %i: i64[a], %z: i64[]) -> (i64[8]) { %y = index_put %x, %z, %i {dims=[0], accumulate=true} : i64[8]; return %y }`},
	{name: "index_put", text: `(%x: bf16[40,16], %z: bf16[a,16], %i: i64[a]) -> (bf16[40,16]) { %y = index_put %x, %z, %i {dims=[0]} : bf16[40,16]; return %y }`},
	{name: "index_put_row", text: `(%x: f32[40,6], %z: f32[6], %i: i64[a]) -> (f32[40,6]) { %y = index_put %x, %z, %i {dims=[0], accumulate=true} : f32[40,6]; return %y }`},
	{name: "index_put_pairs", text: `(%x: f32[a+1,b+1], %z: f32[c], %i: i64[c], %j: i64[c]) -> (f32[a+1,b+1]) { %y = index_put %x, %z, %i, %j {dims=[0, 1], accumulate=true} : f32[a+1,b+1]; return %y }`},
	{name: "scatter", text: `(%x: f32[a,11], %i: i64[a,3], %z: f32[a,3]) -> (f32[a,11]) { %y = scatter %x, %i, %z {dim=1} : f32[a,11]; return %y }`},
	{name: "scatter_value", text: `(%x: bf16[a,11], %i: i64[a,2]) -> (bf16[a,11]) { %y = scatter %x, %i {dim=1, value=1.0} : bf16[a,11]; return %y }`},
	{name: "scatter_add", text: `(%x: f32[9,4], %i: i64[a,3], %z: f32[a,4]) -> (f32[9,4]) { %y = scatter %x, %i, %z {dim=0, reduce="add"} : f32[9,4]; return %y }`},
	{name: "scan", text: `(%x: bf16[a,100*b]) -> (bf16[a,100*b]) { %y = cumsum %x {dim=1} : bf16[a,100*b]; return %y }`},
	{name: "convolution", text: `(%x: f32[a,3,7,5], %w: f32[4,3,3,2]) -> (f32[a,4,5,4]) { %y = convolution %x, %w : f32[a,4,5,4]; return %y }`},
	{name: "convolution_tiled", text: `(%x: bf16[a,3,7,5], %w: bf16[18,3,3,2]) -> (bf16[a,18,7,4]) { %y = convolution %x, %w {padding=[1, 1, 0, 0]} : bf16[a,18,7,4]; return %y }`},
	{name: "max_pool", text: `(%x: f32[a,3,8,5]) -> (f32[a,3,4,5]) { %y = reduce_window %x {reduce="max", window=[1, 1, 2, 1], strides=[1, 1, 2, 1]} : f32[a,3,4,5]; return %y }`},
	{name: "window_rows", text: `(%x: i32[a+2,5]) -> (i32[a,5]) { %y = reduce_window %x {reduce="sum", window=[3, 1]} : i32[a,5]; return %y }`},
	{name: "grouped_rows", text: `(%x: f32[a,20], %w: f32[3,20,9], %e: i32[3]) -> (f32[a,9]) { %y = grouped_matmul %x, %w, %e : f32[a,9]; return %y }`},
	{name: "grouped_columns", text: `(%x: bf16[3,7,20], %w: bf16[20,a], %e: i64[3]) -> (bf16[7,a]) { %y = grouped_matmul %x, %w, %e : bf16[7,a]; return %y }`},
	{name: "grouped_inner", text: `(%x: f32[6,a], %w: f32[a,b], %e: i64[3]) -> (f32[3,6,b]) { %y = grouped_matmul %x, %w, %e : f32[3,6,b]; return %y }`},
	{name: "topk", text: `(%x: f32[a,16]) -> (f32[a,2], i64[a,2]) { %y:2 = topk %x {k=2, dim=1} : f32[a,2], i64[a,2]; return %y#0, %y#1 }`},
	{name: "topk_lines", text: `(%x: bf16[a+3,b]) -> (bf16[3,b], i64[3,b]) { %y:2 = topk %x {k=3, dim=0, largest=false} : bf16[3,b], i64[3,b]; return %y#0, %y#1 }`},
	{name: "topk_long", text: `(%x: f32[b,111*a+5]) -> (f32[b,5], i64[b,5]) { %y:2 = topk %x {k=5, dim=1} : f32[b,5], i64[b,5]; return %y#0, %y#1 }`},
	{name: "transposed", text: `(%x: f16[b,4,a,6:24*a,6,24,1]) -> (f16[b,4,a,6]) { %y = clone %x : f16[b,4,a,6]; return %y }`},
	{name: "transposed_result", text: `(%x: bf16[b,a,6], %z: bf16[b,a,6:6,6*b,1]) -> (bf16[b,a,6:6,6*b,1]) { %y = add %x, %z : bf16[b,a,6:6,6*b,1]; return %y }`},
	{name: "transposed_sum", text: `(%x: f32[a,b,12:1,12*a,a]) -> (f32[a,b]) { %y = sum %x {dims=[2]} : f32[a,b]; return %y }`},
	{name: "transposed_softmax", text: `(%x: f32[b,a,c:c*a,1,a]) -> (f32[b,a,c]) { %y = softmax %x {dim=2} : f32[b,a,c]; return %y }`},
	{name: "transposed_index", text: `(%x: f32[9,b:1,9], %i: i64[a,b:1,a]) -> (f32[a,b]) { %y = gather %x, %i {dim=0} : f32[a,b]; return %y }`},
	{name: "repeated", text: `(%x: f32[a,b,3:3*b,0,1], %z: f32[a,b,3]) -> (f32[a,b,3]) { %y = mul %x, %z : f32[a,b,3]; return %y }`},
	{name: "two_rows", text: `(%x: bf16[a,b,24:96*b,96,1], %g: bf16[24]) -> (bf16[a*b,24]) { %w = convert %x : f32[a,b,24]; %s = mean %w {dims=[2], keepdim=true} : f32[a,b,1]; %d = sub %w, %s : f32[a,b,24]; %h = convert %d : bf16[a,b,24]; %m = mul %h, %g : bf16[a,b,24]; %y = view %m : bf16[a*b,24]; %z = neg %y : bf16[a*b,24]; return %z }`},
	{name: "two_rows_between", text: `(%x: f32[a,2,b,5], %z: f32[a,2,b,1]) -> (f32[a,2,b,5]) { %e = sub %x, %z : f32[a,2,b,5]; %y = softmax %e {dim=3} : f32[a,2,b,5]; return %y }`},
	{name: "convolution_open", text: `(%x: f32[a,3,b+2,c+1], %w: f32[4,3,3,2]) -> (f32[a,4,b,c]) { %y = convolution %x, %w : f32[a,4,b,c]; return %y }`},
	{name: "convolution_open_channels", text: `(%x: f32[2,a,b+2,7:7*b+14,14*b+28,7,1], %w: f32[3,a,3,7]) -> (f32[2,3,b,1]) { %y = convolution %x, %w : f32[2,3,b,1]; return %y }`},
	{name: "convolution_open_groups", text: `(%x: bf16[a,4,b,3], %w: bf16[6,2,1,3]) -> (bf16[a,6,b,3]) { %y = convolution %x, %w {groups=2, padding=[0, 0, 1, 1]} : bf16[a,6,b,3]; return %y }`},
	{name: "pool_open", text: `(%x: f32[a,2,b+1,c:c,a*c,2*a*c,1]) -> (f32[a,2,b,c]) { %y = reduce_window %x {reduce="max", window=[1, 1, 2, 1]} : f32[a,2,b,c]; return %y }`},
}

const sizedMax = 37

// lines puts the statements of a case on lines of their own.
var lines = strings.NewReplacer(" { %", " {\n%", "; ", "\n", " }", "\n}")

// sizedKernels generates the kernels of the cases, with their functions.
func sizedKernels(t *testing.T) (ks []*cudagen.Kernel, sts []*ir.Storages, fs []*ir.Func) {
	t.Helper()
	for _, c := range sizedCases {
		text := fmt.Sprintf("world 1\nsym a hint 5 max %d\nsym b hint 6 max %d\nsym c hint 7 max %d\nsym d hint 1 max 1\nfunc @f%s\n", sizedMax, sizedMax, sizedMax, lines.Replace(c.text))
		m, err := ir.Parse(c.name, text)
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		if err := m.Verify(); err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		f := m.Funcs()[0]
		st, err := ir.ComputeStorages(f)
		if err != nil {
			t.Fatal(err)
		}
		order := f.Order()
		k, err := cudagen.Generate("sized_"+c.name, st, order[len(f.Inputs()):len(order)-1])
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		ks, sts, fs = append(ks, k), append(sts, st), append(fs, f)
	}
	return ks, sts, fs
}

// sizedTrials runs each case at random sizes, nothing and the bounds among them.
func sizedTrials(t *testing.T, rounds int) []*trial {
	t.Helper()
	ks, sts, fs := sizedKernels(t)
	rng := rand.New(rand.NewPCG(1, 2))
	var trials []*trial
	for i, k := range ks {
		for round := range rounds {
			at := map[string]int64{"d": int64(round & 1)}
			for _, s := range []string{"a", "b", "c"} {
				switch {
				case round == 0:
					at[s] = 0
				case round == 1:
					at[s] = sizedMax
				case rng.IntN(5) == 0:
					at[s] = int64(rng.IntN(2) * sizedMax)
				default:
					at[s] = int64(rng.IntN(sizedMax + 1))
				}
				if sizedCases[i].positive {
					at[s] = max(at[s], 1)
				}
			}
			tr, err := newTrialAt(k, sts[i], fs[i], -1, uint64(round), at)
			if err != nil {
				t.Fatalf("%s: %v: %v", sizedCases[i].name, at, err)
			}
			trials = append(trials, tr)
		}
	}
	return trials
}

// Kernels whose sizes are dynamic give the bits that the interpreter
// gives, whatever the sizes.
func TestRandomSizes(t *testing.T) {
	rounds := 8
	if testing.Short() {
		rounds = 3
	}
	trials := sizedTrials(t, rounds)
	compiles(t, trials)
	compare(t, trials, runOnHost(t, trials, "-DEXACT_MATH"), true)
	compare(t, trials, runOnHost(t, trials), false)
}

// What has no kernel says which operation that is and why.
func TestSizedErrors(t *testing.T) {
	for _, c := range []struct{ name, text, node, op, want string }{
		{"mixed", `(%x: f32[a,4], %z: bf16[b,4]) -> (f32[a+b,4]) { %y = cat %x, %z {dim=0} : f32[a+b,4]; return %y }`, "y", "cat", "f32 from bf16"},
		{"two_folds", `(%x: f32[a,b]) -> (f32[a]) { %s = sum %x {dims=[1]} : f32[a]; %y = exp %s : f32[a]; return %y }`, "s", "sum", "%s is f32[a]: only the number of rows, one for all, may be known at run time only"},
		{"columns", `(%x: f32[a,4]) -> (f32[4]) { %e = exp %x : f32[a,4]; %y = sum %e {dims=[0]} : f32[4]; return %y }`, "y", "sum", "rows of its result depend on other rows, or on how many there are"},
	} {
		m, err := ir.Parse(c.name, "world 1\nsym a hint 5 max 37\nsym b hint 6 max 37\nfunc @f"+lines.Replace(c.text)+"\n")
		if err != nil {
			t.Fatal(err)
		}
		f := m.Funcs()[0]
		st, err := ir.ComputeStorages(f)
		if err != nil {
			t.Fatal(err)
		}
		order := f.Order()
		_, err = cudagen.Generate("k", st, order[len(f.Inputs()):len(order)-1])
		var u *cudagen.UnsupportedError
		if !errors.As(err, &u) || !errors.Is(err, cudagen.ErrUnsupported) || u.Node != c.node || u.Op != c.op || u.Reason != c.want {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

// Every region that the pass forms in random programs of which one or two sizes are known at run
// time only, the rows' or those of any dimension, becomes a kernel that gives the interpreter's bits whatever that size is, and
// so does every launch that is alone.
func TestRandomSizedRegions(t *testing.T) {
	seeds := uint64(500)
	if testing.Short() {
		seeds = 120
	}
	rows, all := regexp.MustCompile(`\[8([,\]])`), regexp.MustCompile(`([\[,])(8|16)([,\]])`)
	rng := rand.New(rand.NewPCG(5, 6))
	var trials []*trial
	programs, regional := 0, 0
	for seed := range seeds {
		g, err := gen.Module(seed, gen.Config{Nodes: 40, World: 1})
		if err != nil {
			t.Fatal(err)
		}
		text := rows.ReplaceAllString(g.String(), "[s$1")
		if seed%2 > 0 {
			text = all.ReplaceAllStringFunc(g.String(), func(s string) string { return strings.NewReplacer("16", "r", "8", "s").Replace(s) })
			text = all.ReplaceAllStringFunc(text, func(s string) string { return strings.NewReplacer("16", "r", "8", "s").Replace(s) }) // what shared a comma
		}
		text = strings.Replace(text, "world 1\n", "world 1\nsym r hint 16 max 19\nsym s hint 8 max 21\n", 1)
		m, err := ir.Parse("random", text)
		if err != nil || m.Verify() != nil {
			continue // a size that has to be a number, or strides
		}
		programs++
		fused(t, m, "fuse{kernels=true}")
		for _, f := range m.Funcs() {
			for _, nodes := range runs(f) {
				if !slices.ContainsFunc(nodes, symbolic) || nodes[0].Op() == ir.OpShard {
					continue
				}
				st, err := ir.ComputeStorages(f)
				if err != nil {
					t.Fatal(err)
				}
				k, err := cudagen.Generate("k", st, nodes)
				if err != nil {
					if !strings.Contains(err.Error(), "nobody reads") {
						t.Errorf("seed %d: %v", seed, err)
					}
					continue
				}
				one := alone(nodes, k.Outs)
				if one.Module().Verify() != nil {
					continue
				}
				st, err = ir.ComputeStorages(one)
				if err != nil {
					t.Fatal(err)
				}
				order := one.Order()
				if k, err = cudagen.Generate(fmt.Sprint("z", len(trials)), st, order[len(one.Inputs()):len(order)-1]); err != nil {
					t.Errorf("seed %d: %v", seed, err)
					continue
				}
				if len(nodes) > 1 {
					regional++
				}
				for _, s := range []int64{rng.Int64N(22), 21, 1} {
					tr, err := newTrialAt(k, st, one, 0, seed, map[string]int64{"r": min(s, 19), "s": s})
					if err != nil && s == 0 {
						continue // nothing is the largest of none
					}
					if err != nil {
						t.Fatalf("seed %d: %v", seed, err)
					}
					trials = append(trials, tr)
				}
			}
		}
	}
	t.Logf("%d launches of %d programs, %d kernels of several operations", len(trials), programs, regional)
	if programs < int(seeds)/10 || regional < programs/2 {
		t.Fatalf("%d programs, %d regions", programs, regional)
	}
	compare(t, trials, runOnHost(t, trials, "-DEXACT_MATH"), true)
	together(t, trials, "-DEXACT_MATH")
}

// symbolic reports whether a size of n is known at run time only.
func symbolic(n *ir.Node) bool {
	return slices.ContainsFunc(slices.Concat(n.Args(), n.Results()), func(v *ir.Value) bool {
		_, ok := v.Type().Shape().Static()
		return !ok && !v.Type().IsAsync()
	})
}
