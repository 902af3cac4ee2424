// Package cublas is cuBLAS on one stream: matrix products for measurements beside
// collectives. Matmuls of programs go through package lt.
package cublas
