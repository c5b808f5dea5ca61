#include "fault.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>

int fault_set(struct fault *fault, const char *format, ...)
{
	int error = errno;
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(fault->stage, sizeof fault->stage, format, arguments);
	va_end(arguments);
	/* A fault without a cause would read as success to the caller. */
	fault->error = error == 0 ? EIO : error;
	return -1;
}
