// A stand-in for libcuda.so.1.
int cuCtxSetCurrent(void *ctx) { return ctx == (void *)42 ? 0 : 201; }
