// DL_BIND resolves a function of a library into a field of a table, for functions that
// return the name of a symbol that is missing (dl.Library.Load).
#ifndef CONCERT_DL_BIND_H
#define CONCERT_DL_BIND_H
#include <dlfcn.h>

#define DL_BIND(table, name, sym)                                                                             \
	if (!(*(void **)&(table).name = dlsym(lib, sym)))                                                     \
		return sym;
#endif
