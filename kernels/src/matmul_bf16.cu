#include "matmul.h"

MATMULS_OF(bf16, false)
