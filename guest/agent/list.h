/* A doubly linked list whose links live in its members: queueing never allocates, leaving is O(1). */
#ifndef LIST_H
#define LIST_H

#include <stdbool.h>
#include <stddef.h>

struct link {
	struct link *prev, *next;
};

#define OWNER_OF(pointer, type, member) ((type *)((char *)(pointer)-offsetof(type, member)))

static inline void list_init(struct link *list) { list->prev = list->next = list; }
static inline bool list_empty(const struct link *list) { return list->next == list; }
/* A link of zeros is on no list. */
static inline bool link_queued(const struct link *link) { return link->next != NULL; }

static inline void list_append(struct link *list, struct link *link) {
	if (link_queued(link)) return;
	link->prev = list->prev;
	link->next = list;
	list->prev->next = link;
	list->prev = link;
}

static inline void link_leave(struct link *link) {
	if (!link_queued(link)) return;
	link->prev->next = link->next;
	link->next->prev = link->prev;
	link->prev = link->next = NULL;
}

#endif
