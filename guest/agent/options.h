#ifndef OPTIONS_H
#define OPTIONS_H

#include "agent.h"

/* 0, or -1 for an argument that is unknown, malformed or one too many. */
int options_parse(int argc, char **argv, struct options *options);

#endif
