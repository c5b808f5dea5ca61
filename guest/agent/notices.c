/*
 * sysinfo(2), which would show the whole machine: the kernel stops the caller and tells the agent, which answers from the files
 * of the sandbox that say the same (seccomp user notification).
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/seccomp.h>
/* The kernel's, which the caller has room for: that of a C library may be larger. */
#include <linux/sysinfo.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "agent.h"

#define FILE_BYTES 8192
/* As long an answer is good: the work for it is nobody's but the node's, whoever calls without pause. */
#define FRESH_US 10000u
/* Fixed point of load averages, as the call has them. */
#define LOAD_ONE 65536.0

void notices_add(struct agent *agent, int listener) {
	/* The filter of every spawner has its own; commands of earlier ones still call. The oldest gives way: its calls fail. */
	int slot = agent->notices_next;
	agent->notices_next = (slot + 1) % NOTICES;
	close_fd(&agent->notices[slot]);
	agent->notices[slot] = listener;
	struct epoll_event event = {.events = EPOLLIN, .data.u64 = (uint64_t)slot | (uint64_t)ON_NOTICE << 56};
	epoll_ctl(agent->epoll, EPOLL_CTL_ADD, listener, &event);
}

/* The value of `key` in kB, as bytes. */
static unsigned long memory_of(const char *text, const char *key) {
	const char *found = strstr(text, key);
	return found == NULL ? 0 : strtoul(found + strlen(key), NULL, 10) * 1024;
}

/* 0 or an errno. */
static int gather(struct sysinfo *info) {
	static char text[FILE_BYTES];
	double uptime = 0, loads[3] = {0};
	unsigned running = 0, processes = 0;
	if (!read_text("/proc/meminfo", text, sizeof text)) return ENOSYS;
	*info = (struct sysinfo){
		.totalram = memory_of(text, "MemTotal:"),
		.freeram = memory_of(text, "MemFree:"),
		.sharedram = memory_of(text, "Shmem:"),
		.bufferram = memory_of(text, "Buffers:"),
		.totalswap = memory_of(text, "SwapTotal:"),
		.freeswap = memory_of(text, "SwapFree:"),
		.mem_unit = 1,
	};
	if (!read_text("/proc/uptime", text, sizeof text) || sscanf(text, "%lf", &uptime) != 1) return ENOSYS;
	if (!read_text("/proc/loadavg", text, sizeof text)) return ENOSYS;
	if (sscanf(text, "%lf %lf %lf %u/%u", &loads[0], &loads[1], &loads[2], &running, &processes) != 5) return ENOSYS;
	info->uptime = (long)uptime;
	info->procs = processes > UINT16_MAX ? UINT16_MAX : (uint16_t)processes;
	for (int i = 0; i < 3; i++) info->loads[i] = (unsigned long)(loads[i] * LOAD_ONE);
	return 0;
}

/* The same for all who call within a moment. 0 or an errno. */
static int look(const struct agent *agent, struct sysinfo *info) {
	static struct sysinfo last;
	static uint64_t until_us;
	if (agent->now_us >= until_us) {
		int error = gather(&last);
		if (error != 0) return error;
		until_us = agent->now_us + FRESH_US;
	}
	*info = last;
	return 0;
}

/* Into the memory of the caller, if it is still the one that called. 0 or an errno. */
static int give(int listener, const struct seccomp_notif *notice, const struct sysinfo *info) {
	char path[32];
	uint64_t id = notice->id;
	snprintf(path, sizeof path, "/proc/%u/mem", notice->pid);
	int memory = open(path, O_WRONLY | O_CLOEXEC);
	if (memory < 0) return ENOSYS;
	int error = 0;
	/* Opened before it is asked: a number that went to another process by now is found out here. */
	if (ioctl(listener, SECCOMP_IOCTL_NOTIF_ID_VALID, &id) != 0) {
		error = ENOSYS;
	} else if (pwrite(memory, info, sizeof *info, (off_t)notice->data.args[0]) != (ssize_t)sizeof *info) {
		error = EFAULT;
	}
	close(memory);
	return error;
}

static void answer(const struct agent *agent, int listener) {
	struct seccomp_notif notice = {0};
	struct sysinfo info;
	/* Killed meanwhile, or taken by nobody else: there is nothing to answer. */
	if (ioctl(listener, SECCOMP_IOCTL_NOTIF_RECV, &notice) != 0) return;
	int error = look(agent, &info);
	if (error == 0) error = give(listener, &notice, &info);
	struct seccomp_notif_resp reply = {.id = notice.id, .error = -error};
	ioctl(listener, SECCOMP_IOCTL_NOTIF_SEND, &reply);
}

void notices_event(struct agent *agent, uint32_t slot, uint32_t events) {
	if (slot >= NOTICES || agent->notices[slot] < 0) return;
	if (events & EPOLLIN) {
		answer(agent, agent->notices[slot]);
	} else {
		/* No process has this filter any more. */
		close_fd(&agent->notices[slot]);
	}
}
