#ifndef USER_H
#define USER_H

#include <sys/types.h>

#define GROUPS_KEPT 256
#define NAME_KEPT 256
#define HOME_KEPT 4096

struct identity {
	uid_t uid;
	gid_t gid;
	gid_t groups[GROUPS_KEPT];
	int group_count;
	char name[NAME_KEPT]; /* empty when the number has none */
	char home[HOME_KEPT];
};

/*
 * `name`, `uid`, `name:group` or `uid:gid` by the sandbox's own /etc/passwd and /etc/group, which are hostile bytes. 0, or an
 * errno: ENOENT for a name that is not there. With a group given the supplementary groups stay empty.
 */
int identity_resolve(const char *text, struct identity *identity);

#endif
