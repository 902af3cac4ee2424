#include "matmul.h"

SCATTERINGS_OF(bf16, false)
