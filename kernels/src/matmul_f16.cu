#include "matmul.h"

MATMULS_OF(f16, true)
