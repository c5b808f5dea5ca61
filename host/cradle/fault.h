#ifndef CRADLE_FAULT_H
#define CRADLE_FAULT_H

/* What stopped a create: the step, in words for the node's log, and the errno that the caller acts on. */
struct fault {
	int error;
	char stage[236];
};

/* Records `errno` and the step; returns -1, so that a failing function ends with `return fault_set(...)`. */
__attribute__((format(printf, 2, 3))) int fault_set(struct fault *fault, const char *format, ...);

#endif
