#ifndef PROGRAM_H
#define PROGRAM_H

#include "start.h"
#include "user.h"

struct program_failure {
	int error;
	/* The file is there; what its first line or its header names is not. */
	bool missing_interpreter;
};

/* The whole environment of a program: what the start says, and what every program is given beside it. NULL: no memory. */
char **program_environment(const struct start *start, const struct identity *identity);

/* Replaces the process by the program; returns only when that fails. */
struct program_failure program_exec(const struct start *start, const struct identity *identity);

#endif
