#include "matmul.h"

GATHERINGS_OF(bf16, false)
