#include "matmul.h"

SCATTERINGS_OF(f16, true)
