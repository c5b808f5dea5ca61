#ifndef CRADLE_SLOTS_H
#define CRADLE_SLOTS_H

#include <stddef.h>
#include <stdint.h>

#include "cradle.h"

struct slots;

/* `link` takes the replies. NULL with errno when memory lacks. */
struct slots *slots_new(const struct cradle *cradle, int link);
void slots_free(struct slots *slots);

bool slots_full(const struct slots *slots);
bool slots_empty(const struct slots *slots);

/* Gives a CREATE, or a BLANK, to a worker. `fields` is copied. Whatever goes wrong is answered under `tag`. */
void slots_create(struct slots *slots, uint32_t tag, const uint8_t *fields, size_t length);
void slots_blank(struct slots *slots, uint32_t tag, const uint8_t *fields, size_t length);

/* Ends the blank of these ids. No effect when there is none. */
void slots_drop(struct slots *slots, uint32_t uid_base);

/* Asks the worker of `tag` to give up. No effect once it is done. */
void slots_cancel(struct slots *slots, uint32_t tag);
void slots_cancel_all(struct slots *slots);

/* After the bell: answers for workers that are done. */
void slots_answer(struct slots *slots);

/* After SIGCHLD for `pid`: collects that child, reports a dead agent, takes down what a dead worker left. */
void slots_collect(struct slots *slots, pid_t pid);

/* The same for every dead child. Looks at each live sandbox: not for every death. */
void slots_collect_all(struct slots *slots);

#endif
