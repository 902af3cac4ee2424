#include "matmul.h"

GATHERINGS_OF(f16, true)
